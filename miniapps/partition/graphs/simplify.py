"""Simplifies a graph: fewer kinds of nodes with the same values, so that fewer rules suffice.

Transposes become `permute`, reshapes `view`, tensors in the shape of another `full`. Products with a bias are split, so
that a bias is added once and not to every partial sum. The gradients of a convolution become separate nodes, because
each reads other places. Copies, equal nodes and nodes without readers are removed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from miniapps.partition.graphs.graph import Graph, Node, Tensor, replace

SAME = ("detach", "alias", "clone", "lift_fresh_copy", "lift_fresh", "contiguous")
RANDOM = ("rand", "randn", "bernoulli", "native_dropout", "rand_like", "randn_like", "normal", "uniform")
VIEWS = ("view", "_unsafe_view", "reshape", "_reshape_alias", "squeeze", "unsqueeze", "flatten")
LIKE = {"ones_like": 1, "zeros_like": 0, "empty_like": 0, "full_like": None}


def simplified(graph: Graph) -> Graph:
    """The simplified graph of the same step; see the docstring of this module."""
    work = Simplifier(graph)
    for node in graph.nodes:
        work.add(node)
    return live(work.graph())


def operation(target: str) -> str:
    """The name of an operation: `mm` for `aten.mm.default`."""
    return target.split(".")[1]


class Simplifier:
    """The nodes kept so far, and the new values of the old graph's names."""

    def __init__(self, graph: Graph):
        self.old = graph
        self.names: dict[str, str] = {}  # new name of each replaced value
        self.tensors = graph.tensors()
        self.nodes: dict[str, Node] = {}  # by the name of a result
        self.order: list[Node] = []
        self.known: dict[tuple, tuple[Tensor, ...]] = {}

    def graph(self) -> Graph:
        """Returns the new graph."""
        given = self.old
        new = self.names
        return Graph(
            given.sources,
            tuple(self.order),
            new.get(given.loss, given.loss),
            tuple((key, new.get(name, name)) for key, name in given.gradients),
            tuple((key, new.get(name, name)) for key, name in given.updates),
        )

    def add(self, node: Node) -> None:
        """Keep a node, simplified."""
        args = replace(node.args, self.names)
        kwargs = tuple((key, replace(value, self.names)) for key, value in node.kwargs)
        rewrite = REWRITES.get(operation(node.target) if node.target.startswith("aten.") else "")
        if rewrite is None or not rewrite(self, node, args, dict(kwargs)):
            self.keep(node, node.target, args, kwargs)

    def keep(self, node: Node, target: str, args: tuple, kwargs: tuple = (), results=None) -> None:
        """Append a node with the results of `node`, or reuse an equal node."""
        results = node.results if results is None else results
        key = (target, args, kwargs, tuple((t.shape, t.dtype) for t in results))
        drawn = operation(target) in RANDOM
        if not drawn and key in self.known:
            for mine, there in zip(results, self.known[key], strict=True):
                self.stand_for(mine.name, there.name)
            return
        self.known[key] = results
        kept = Node(node.name, target, args, kwargs, results, node.where)
        self.order.append(kept)
        self.nodes.update((tensor.name, kept) for tensor in results)

    def put(
        self, node: Node, suffix: str, target: str, args: tuple, shape: tuple[int, ...], dtype: str
    ) -> str:
        """Insert a node with one result before `node`; returns the name of its value."""
        tensor = Tensor(f"{node.name}_{suffix}", shape, dtype)
        self.tensors[tensor.name] = tensor
        self.keep(Node(tensor.name, target, args, (), (tensor,), node.where), target, args)
        return self.names.get(tensor.name, tensor.name)

    def stand_for(self, name: str, other: str) -> None:
        """Replace the value `name` by `other`."""
        self.names[name] = self.names.get(other, other)

    def tensor(self, argument: str) -> Tensor:
        """The tensor of an argument "%NAME"."""
        return self.tensors[argument[1:]]


# ---- rewrites of a node, called with arguments in names of the new graph; they return False to keep the node


def same(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Replaces a copy by its operand."""
    work.stand_for(node.results[0].name, args[0][1:])
    return True


def drop(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Removes an assertion, whose result is never read."""
    return True


def times(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Removes a multiplication by the number 1."""
    (result,) = node.results
    if (
        len(args) < 2
        or isinstance(args[1], str | bool)
        or args[1] != 1
        or work.tensor(args[0]).dtype != result.dtype
    ):
        return False
    return same(work, node, args, kwargs)


def copy_to(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Keeps only the dtype of a conversion; removes a conversion to the same dtype."""
    (result,) = node.results
    if work.tensor(args[0]).dtype == result.dtype:
        return same(work, node, args, kwargs)
    work.keep(node, node.target, args[:1], (("dtype", f"torch.{result.dtype}"),))
    return True


def view(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Joins a reshape with the reshapes before it; removes it if the original shape results."""
    (result,) = node.results
    source = args[0]
    while (before := work.nodes.get(source[1:])) is not None and before.target == "aten.view.default":
        source = before.args[0]
    if work.tensor(source).shape == result.shape:
        work.stand_for(result.name, source[1:])
    else:
        work.keep(node, "aten.view.default", (source, result.shape))
    return True


def permute(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Turns a transpose into an order of dims, joined with the one before it; removes it if the original order
    results."""
    source = args[0]
    rank = len(work.tensor(source).shape)
    order = order_of(operation(node.target), args, rank)
    before = work.nodes.get(source[1:])
    if before is not None and before.target == "aten.permute.default":
        source, order = before.args[0], tuple(before.args[1][k] for k in order)
    if order == tuple(range(rank)):
        work.stand_for(node.results[0].name, source[1:])
    else:
        work.keep(node, "aten.permute.default", (source, order))
    return True


def order_of(name: str, args: tuple, rank: int) -> tuple[int, ...]:
    """The dim of the operand for each dim of a transpose."""
    if name == "permute":
        return tuple(dim % rank for dim in args[1])
    order = list(range(rank))
    if name == "t":
        return tuple(reversed(order))
    a, b = args[1] % rank, args[2] % rank
    order[a], order[b] = b, a
    return tuple(order)


def full(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Turns a tensor of equal numbers into `full`."""
    (result,) = node.results
    name = operation(node.target)
    if name in LIKE:
        value = LIKE[name] if LIKE[name] is not None else args[1]
    else:
        value = {"scalar_tensor": args[0], "full": args[-1]}.get(name, {"ones": 1}.get(name, 0))
    work.keep(node, "aten.full.default", (result.shape, value), (("dtype", f"torch.{result.dtype}"),))
    return True


def adaptive(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Turns a pool into a given number of places into one with windows of one size, if they have one."""
    name = operation(node.target)
    backward = name.endswith("backward")
    image = work.tensor(args[1 if backward else 0]).shape[-2:]
    places = (work.tensor(args[0]) if backward else node.results[0]).shape[-2:]
    if any(n % m for n, m in zip(image, places, strict=True)):
        return False
    window = tuple(n // m for n, m in zip(image, places, strict=True))
    how = (window, window, (0, 0))
    largest = name.startswith("adaptive_max")
    target = "max_pool2d_with_indices" if largest else "avg_pool2d"
    more = ((1, 1), False, *args[2:]) if largest else (False, True, None)
    if backward:
        work.keep(node, f"aten.{target}_backward.default", (*args[:2], *how, *more))
    else:
        work.keep(node, f"aten.{target}.default", (args[0], *how))
    return True


def index_add(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Turns an addition to the elements of one dim at indices into one at indices of any dims."""
    x, dim, indices, source = args
    if kwargs.get("alpha", 1) != 1:
        return False
    dim %= len(work.tensor(x).shape)
    work.keep(node, "aten.index_put.default", (x, (*[None] * dim, indices), source, True))
    return True


def add_bias(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Splits a product with a bias into a product and a sum."""
    (result,) = node.results
    bias, a, b = args
    product = "aten.mm.default" if operation(node.target) == "addmm" else "aten.bmm.default"
    if kwargs.get("beta", 1) != 1 or kwargs.get("alpha", 1) != 1:
        return False
    value = work.put(node, "product", product, (a, b), result.shape, result.dtype)
    work.keep(node, "aten.add.Tensor", ("%" + value, bias))
    return True


def all_dims(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Gives sums and extremes an explicit list of dims, ascending from 0 without repetition."""
    x = work.tensor(args[0])
    dims = args[1] if len(args) > 1 and isinstance(args[1], tuple) else ()
    dims = tuple(sorted(d % len(x.shape) for d in dims)) if dims else tuple(range(len(x.shape)))
    keep = bool(args[2]) if len(args) > 2 else bool(kwargs.get("keepdim", False))
    name = operation(node.target)
    target = "aten.sum.dim_IntList" if name == "sum" else f"aten.{name}.default"
    (result,) = node.results
    kept = (("dtype", f"torch.{result.dtype}"),) if name == "sum" and result.dtype != x.dtype else ()
    work.keep(node, target, (args[0], dims, keep), kept)
    return True


def part(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Gives `slice` all of its bounds; turns `select` into a slice and a view."""
    x = work.tensor(args[0])
    dim = (args[1] if len(args) > 1 else 0) % len(x.shape)
    n = x.shape[dim]
    if operation(node.target) == "select":
        part_at(work, node, args[0], dim, args[2] % n)
        return True
    begin, end = (*args[2:4], None, None)[:2]
    step = args[4] if len(args) > 4 else 1
    begin = 0 if begin is None else max(0, begin + n) if begin < 0 else min(begin, n)
    end = n if end is None else max(0, end + n) if end < 0 else min(end, n)
    if (begin, end, step) == (0, n, 1):
        return same(work, node, args, kwargs)
    work.keep(node, "aten.slice.Tensor", (args[0], dim, begin, end, step))
    return True


def parts(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Turns `split` and `chunk` into slices."""
    x = work.tensor(args[0])
    dim = (args[2] if len(args) > 2 else kwargs.get("dim", 0)) % len(x.shape)
    begin = 0
    for result in node.results:
        end = begin + result.shape[dim]
        one = Node(result.name, "aten.slice.Tensor", (), (), (result,), node.where)
        work.keep(one, "aten.slice.Tensor", (args[0], dim, begin, end, 1))
        begin = end
    return True


def unbind(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Turns `unbind` into a slice and a view for each result."""
    x = work.tensor(args[0])
    dim = (args[1] if len(args) > 1 else 0) % len(x.shape)
    for at, result in enumerate(node.results):
        one = Node(result.name, "", (), (), (result,), node.where)
        part_at(work, one, args[0], dim, at)
    return True


def part_at(work: Simplifier, node: Node, x: str, dim: int, at: int) -> None:
    """Keeps a node for index `at` of a dim, without the dim."""
    (result,) = node.results
    shape, dtype = work.tensor(x).shape, work.tensor(x).dtype
    piece = tuple(1 if d == dim else m for d, m in enumerate(shape))
    value = work.put(node, "part", "aten.slice.Tensor", (x, dim, at, at + 1, 1), piece, dtype)
    work.keep(node, "aten.view.default", ("%" + value, result.shape))


def convolution(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Splits the bias from a convolution."""
    (result,) = node.results
    x, weight, bias, *how = args
    if bias is None:
        return False
    value = work.put(node, "product", node.target, (x, weight, None, *how), result.shape, result.dtype)
    spread = (1, result.shape[1], *[1] * (len(result.shape) - 2))
    dtype = work.tensor(bias).dtype
    added = work.put(node, "bias", "aten.view.default", (bias, spread), spread, dtype)
    work.keep(node, "aten.add.Tensor", ("%" + value, "%" + added))
    return True


def convolution_gradients(work: Simplifier, node: Node, args, kwargs) -> bool:
    """Splits the backward pass of a convolution into a node for each requested gradient."""
    gradient, x, weight, _, stride, padding, dilation, transposed, output_padding, groups, mask = args
    shared = (stride, padding, dilation, transposed, output_padding, groups)
    names = {result.name.rpartition(".")[2]: result for result in node.results}
    for number, wanted in enumerate(mask):
        if not wanted:
            continue
        result = names[str(number)]
        one = Node(result.name, "", (), (), (result,), node.where)
        if number == 0:
            work.keep(one, "partition.conv_input_gradient", (gradient, weight, *shared))
        elif number == 1:
            work.keep(one, "partition.conv_weight_gradient", (gradient, x, *shared))
        else:
            dims = tuple(d for d in range(len(work.tensor(gradient).shape)) if d != 1)
            work.keep(one, "aten.sum.dim_IntList", (gradient, dims, False))
    return True


REWRITES: dict[str, Callable[[Simplifier, Node, tuple, dict[str, Any]], bool]] = {
    **dict.fromkeys(SAME, same),
    **dict.fromkeys(("_assert_tensor_metadata", "_assert_async", "_assert_scalar"), drop),
    **dict.fromkeys(VIEWS, view),
    **dict.fromkeys(("t", "transpose", "permute"), permute),
    **dict.fromkeys((*LIKE, "full", "zeros", "ones", "scalar_tensor"), full),
    **dict.fromkeys(("addmm", "baddbmm"), add_bias),
    **dict.fromkeys(("sum", "amax", "amin"), all_dims),
    **dict.fromkeys(("slice", "select"), part),
    **dict.fromkeys(("split", "split_with_sizes"), parts),
    **dict.fromkeys(
        (
            "_adaptive_avg_pool2d",
            "_adaptive_avg_pool2d_backward",
            "adaptive_max_pool2d",
            "adaptive_max_pool2d_backward",
        ),
        adaptive,
    ),
    "index_add": index_add,
    "unbind": unbind,
    "mul": times,
    "_to_copy": copy_to,
    "convolution": convolution,
    "convolution_backward": convolution_gradients,
}


def live(graph: Graph) -> Graph:
    """The graph without nodes and constants that have no readers."""
    wanted, kept = set(graph.outputs()), []
    for node in reversed(graph.nodes):
        if any(tensor.name in wanted for tensor in node.results):
            kept.append(node)
            wanted.update(node.operands())
    sources = tuple(s for s in graph.sources if s.kind != "constant" or s.tensor.name in wanted)
    return Graph(sources, tuple(reversed(kept)), graph.loss, graph.gradients, graph.updates)
