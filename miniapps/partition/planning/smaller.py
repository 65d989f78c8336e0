"""Writes operations in smaller ones, where an axis cuts a dim that the operation needs whole.

A softmax becomes a maximum, a sum and operations on elements; a lookup reads the rows of each part, and adds zeros for
others; a slice or a roll reads places of the operand, as a window does. The rules of the smaller operations then cut
them. Whether an operation is written so depends on the axes, never on a mesh, because it decides bits.

A function in `SMALLER` gets the operation and the cut of each parted label. It returns False if it cannot write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as changed
from math import inf, prod
from typing import Any

from miniapps.partition.cuts.axes import Cut, Dim
from miniapps.partition.graphs.graph import Graph, Node, Tensor, tensors_in
from miniapps.partition.graphs.simplify import live, operation
from miniapps.partition.planning.propagate import Ruled, wished
from miniapps.partition.rules.project import Axes
from miniapps.partition.rules.window import both, pooled

Cuts = Mapping[Any, Dim]
POOL, POOL_BACK = "max_pool2d_with_indices", "max_pool2d_with_indices_backward"


def written(graph: Graph, nodes: Sequence[Ruled], wishes: Mapping[str, Cut], axes: Axes) -> Graph | None:
    """The graph in which operations along wished cuts are written in smaller ones; None if there are none."""
    chosen = {ruled.node.name: found for ruled in nodes if (found := parted(ruled, wishes, axes))}
    join_pools(graph, chosen)
    if not chosen:
        return None
    work = Smaller(graph, axes)
    for node in graph.nodes:
        work.node = node
        done = False
        if node.name in chosen:
            before = len(work.nodes)
            done = SMALLER[operation(node.target)](work, node, chosen[node.name])
            assert done or len(work.nodes) == before, f"{node.name}: written in part"
        work.count += done
        if not done:
            work.nodes.append(node)
    return live(work.graph()) if work.count else None


def parted(ruled: Ruled, wishes: Mapping[str, Cut], axes: Axes) -> dict[Any, Dim]:
    """The parted labels that the wished cuts cut."""
    if not ruled.rule.parted or operation(ruled.node.target) not in SMALLER:
        return {}
    found = wished(ruled, ruled.rule.opened, wishes, axes)
    return {label: dim for label, dim in found.items() if label in ruled.rule.parted}


def join_pools(graph: Graph, chosen: dict[str, dict[Any, Dim]]) -> None:
    """Write a pool and its gradient both or not at all, since they pass on which element is the largest."""
    made = {f"{node.name}.1": node for node in graph.nodes if operation(node.target) == POOL}
    readers = graph.readers()
    for name, node in made.items():
        backward = [
            r for r in readers.get(name, ()) if operation(r.target) == POOL_BACK and r.args[-1] == f"%{name}"
        ]
        pair = [node, *backward]
        cuts = {label: dim for one in pair for label, dim in chosen.get(one.name, {}).items()}
        for one in pair:
            chosen.pop(one.name, None)
            if cuts and len(backward) == len(readers.get(name, ())) and name not in graph.outputs():
                chosen[one.name] = cuts
    for node in graph.nodes:
        if operation(node.target) == POOL_BACK and node.args[-1][1:] not in made:
            chosen.pop(node.name, None)


class Smaller:
    """The nodes so far. Values are "%NAME"."""

    def __init__(self, graph: Graph, axes: Axes):
        self.old, self.axes, self.count = graph, axes, 0
        self.nodes: list[Node] = []
        self.tensors = graph.tensors()
        self.known: dict[tuple, str] = {}  # values without operands, which are made once
        self.which: dict[str, str] = {}  # the number in its window, for each place in a pooled image
        self.node = graph.nodes[0]

    def graph(self) -> Graph:
        """The new graph, with the names of the old one."""
        old = self.old
        return Graph(old.sources, tuple(self.nodes), old.loss, old.gradients, old.updates)

    def shape(self, value: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.tensors[value[1:]].shape

    def dtype(self, value: str) -> str:
        """The dtype of a value."""
        return self.tensors[value[1:]].dtype

    def put(
        self, name: str, target: str, args: tuple, shape: Iterable[int], dtype: str, kwargs: tuple = ()
    ) -> str:
        """Append a node with one result; returns its value. `name`: what it is, or the tensor of the result."""
        name = f"{self.node.name}_{name}"
        while name in self.tensors:
            name += "_"
        tensor = Tensor(name, tuple(shape), dtype)
        self.tensors[name] = tensor
        # What reads nothing is made once, for all micro-batches.
        micro = self.node.micro if any(tensors_in((args, kwargs))) else None
        self.nodes.append(Node(name, target, args, kwargs, (tensor,), self.node.where, micro))
        return "%" + name

    def ends(self, value: str, result: Tensor) -> None:
        """Give the last node, which made `value`, the name of a result of the old graph."""
        node = self.nodes.pop()
        assert "%" + node.name == value, f"{node.name} is the last node, not {value}"
        self.nodes.append(changed(node, name=result.name, results=(result,)))

    def made(
        self,
        key: str,
        target: str,
        args: tuple,
        shape: Sequence[int],
        dtype: str,
        kwargs=(),
        cut: Dim | None = None,
    ) -> str:
        """A value without operands, made once for each `cut` in which it is wanted."""
        whole = (target, args, tuple(shape), dtype, cut)
        if whole not in self.known:
            self.known[whole] = self.put(key, target, args, shape, dtype, kwargs)
        return self.known[whole]

    def rows(self, n: int, cut: Dim | None) -> str:
        """The places 0 ... n - 1 of a dim with this cut."""
        return self.made("rows", "partition.rows", (n,), (n,), "int64", cut=cut)

    def scalar(self, value: float, dtype: str) -> str:
        """A number as a tensor."""
        kwargs = (("dtype", f"torch.{dtype}"),)
        return self.made("number", "aten.full.default", ((), value), (), dtype, kwargs)

    def along(self, vector: str, dim: int, rank: int) -> str:
        """A vector in dim `dim` of `rank` dims."""
        (n,) = self.shape(vector)
        return self.view(vector, [n if d == dim else 1 for d in range(rank)])

    def view(self, x: str, shape: Iterable[int]) -> str:
        """Another shape of as many elements."""
        shape = tuple(shape)
        return (
            x
            if self.shape(x) == shape
            else self.put("view", "aten.view.default", (x, shape), shape, self.dtype(x))
        )

    def apply(self, name: str, *args, dtype: str = "", overload: str = "") -> str:
        """An operation on elements, with broadcasting."""
        tensors = [arg for arg in args if isinstance(arg, str)]
        rank = max(len(self.shape(x)) for x in tensors)
        shapes = [(1,) * (rank - len(self.shape(x))) + self.shape(x) for x in tensors]
        shape = tuple(map(max, zip(*shapes, strict=True))) if rank else ()
        overload = overload or ("default" if len(args) == 1 else "Tensor" if len(tensors) == 2 else "Scalar")
        return self.put(name, f"aten.{name}.{overload}", args, shape, dtype or self.dtype(tensors[0]))

    def where(self, condition: str, a: str, b: str) -> str:
        """Elements of a where a condition holds, else of b."""
        return self.apply("where", condition, a, b, dtype=self.dtype(a), overload="self")

    def reduced(self, name: str, x: str, dims: Sequence[int], keep: bool = True) -> str:
        """A sum or an extreme over dims."""
        shape = [1 if d in dims else n for d, n in enumerate(self.shape(x)) if keep or d not in dims]
        target = "aten.sum.dim_IntList" if name == "sum" else f"aten.{name}.default"
        return self.put(name, target, (x, tuple(dims), keep), shape, self.dtype(x))

    def spread(self, x: str, dim: int, size: int, begin: int) -> str:
        """x from place `begin` of a dim of `size` on, zeros elsewhere; a single place may be everywhere."""
        return x if self.shape(x)[dim] == 1 else self.places(x, dim, size, offset=-begin)

    def places(self, x: str, dim: int, size: int, scale: int = 1, offset: int = 0, wrap: bool = False) -> str:
        """Element j of the dim is element scale j + offset of x, zero outside or, with `wrap`, from the other end."""
        shape = [size if d == dim else n for d, n in enumerate(self.shape(x))]
        return self.put(
            "places", "partition.places", (x, dim, size, scale, offset, wrap), shape, self.dtype(x)
        )

    def between(self, n: int, begin: int, end: int, dim: int, rank: int, cut: Dim | None) -> str:
        """Whether a place of a dim of n is in [begin, end), as a tensor of `rank` dims."""
        rows = self.rows(n, cut)
        found = None
        for name, bound, always in (("ge", begin, begin <= 0), ("lt", end, end >= n)):
            if not always:
                more = self.apply(name, rows, bound, dtype="bool")
                found = more if found is None else self.apply("logical_and", found, more, overload="default")
        return self.along(found or self.apply("ge", rows, 0, dtype="bool"), dim, rank)

    def starts(self, dim: Dim) -> tuple[int, ...] | None:
        """The first element of each block of a dim that is cut in its major factor alone; else None."""
        (n, axis), *minor = dim
        if axis is None or any(other is not None for _, other in minor):
            return None
        return tuple(start * prod(m for m, _ in minor) for start in self.axes.by_name[axis].at(n)[:-1])


# ---- normalised dims


def softmax(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The largest element, then a sum over blocks."""
    x, dim = node.args[:2]
    (result,) = node.results
    if work.dtype(x) != result.dtype:
        return False
    dims = (dim % len(result.shape),)
    moved = work.apply("sub", x, work.reduced("amax", x, dims))
    powers = work.apply("exp", moved)
    total = work.reduced("sum", powers, dims)
    if operation(node.target) == "_softmax":
        work.ends(work.apply("div", powers, total), result)
    else:
        work.ends(work.apply("sub", moved, work.apply("log", total)), result)
    return True


def softmax_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """y (g - sum(g y)); of the logarithm g - exp(y) sum(g)."""
    gradient, y, dim = node.args[:3]
    (result,) = node.results
    if work.dtype(gradient) != result.dtype:
        return False
    dims = (dim % len(result.shape),)
    if operation(node.target) == "_softmax_backward_data":
        weighted = work.apply("mul", gradient, y)
        shared = work.apply("mul", y, work.reduced("sum", weighted, dims))
        work.ends(work.apply("sub", weighted, shared), result)
    else:
        total = work.reduced("sum", gradient, dims)
        work.ends(work.apply("sub", gradient, work.apply("mul", work.apply("exp", y), total)), result)
    return True


def logsumexp(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """log(sum(exp(x - top))) + top, for infinite `top` without it."""
    x, dims = node.args[:2]
    rank = len(work.shape(x))
    dims = tuple(sorted(d % rank for d in ((dims,) if isinstance(dims, int) else dims)))
    (result,) = node.results
    top = work.reduced("amax", x, dims)
    endless = work.apply("isinf", top, dtype="bool")
    top = work.where(endless, work.scalar(0.0, work.dtype(x)), top)
    total = work.reduced("sum", work.apply("exp", work.apply("sub", x, top)), dims)
    found = work.apply("add", work.apply("log", total), top)
    if work.shape(found) != result.shape:
        found = work.view(found, result.shape)
    work.ends(found, result)
    return True


def layer_norm(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Mean, then the mean of squared distances: two sums over blocks."""
    x, normal, weight, bias, eps = node.args
    rank = len(work.shape(x))
    dims = tuple(range(rank - len(normal), rank))
    n = prod(normal)
    results = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}

    def keep(value: str, number: str) -> str:
        if number not in results:
            return value
        work.ends(value, results[number])
        return "%" + results[number].name

    mean = keep(work.apply("div", work.reduced("sum", x, dims), n), "1")
    apart = work.apply("sub", x, mean)
    spread = work.apply("div", work.reduced("sum", work.apply("mul", apart, apart), dims), n)
    scale = keep(work.apply("rsqrt", work.apply("add", spread, eps)), "2")
    y = work.apply("mul", apart, scale)
    if weight is not None:
        y = work.apply("mul", y, weight)
    if bias is not None:
        y = work.apply("add", y, bias)
    keep(y, "0")
    return True


def layer_norm_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Two sums over blocks for the gradient of x, and sums over the leading dims for those of weight and bias."""
    gradient, x, normal, mean, scale, weight, _, _ = node.args
    rank = len(work.shape(x))
    lead, dims = tuple(range(rank - len(normal))), tuple(range(rank - len(normal), rank))
    n = prod(normal)
    results = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}
    unit = work.apply("mul", work.apply("sub", x, mean), scale)
    if "0" in results:
        g = gradient if weight is None else work.apply("mul", gradient, weight)
        level = work.apply("div", work.reduced("sum", g, dims), n)
        slope = work.apply("div", work.reduced("sum", work.apply("mul", g, unit), dims), n)
        rest = work.apply("sub", work.apply("sub", g, level), work.apply("mul", unit, slope))
        work.ends(work.apply("mul", rest, scale), results["0"])
    for number, factor in (("1", unit), ("2", None)):
        if number in results:
            terms = gradient if factor is None else work.apply("mul", gradient, factor)
            if lead:
                work.ends(work.reduced("sum", terms, lead, keep=False), results[number])
            else:
                work.ends(work.apply("mul", terms, 1.0), results[number])
    return True


# ---- dims that indices point into


def embedding(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part looks up its own rows."""
    table, indices = node.args[:2]
    (result,) = node.results
    return looked_up(work, table, (indices,), result, {0: cuts["row"]})


def index_select(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part looks up its own elements."""
    x, dim, indices = node.args
    (result,) = node.results
    return looked_up(work, x, (*[None] * (dim % len(work.shape(x))), indices), result, cuts)


def index(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part looks up its own elements; negative indices count from the end."""
    x, indices = node.args
    (result,) = node.results
    return looked_up(work, x, counted(work, x, indices, cuts), result, cuts)


def looked_up(work: Smaller, x: str, indices: Sequence, result: Tensor, cuts: Cuts) -> bool:
    """The elements of x at indices, in the dims of `cuts` by rows."""
    rows, sizes = rows_of(work, x, indices, cuts)
    work.ends(
        work.put("at", "partition.index_at", (x, tuple(indices), rows, sizes), result.shape, result.dtype),
        result,
    )
    return True


def rows_of(work: Smaller, x: str, indices: Sequence, cuts: Cuts):
    """(rows, sizes) of the dims of x that are cut and have an index, None and 0 for others."""
    shape = work.shape(x)
    cut = [cuts.get(d) if i is not None else None for d, i in enumerate(indices)]
    rows = tuple(None if own is None else work.rows(shape[d], own) for d, own in enumerate(cut))
    return rows, tuple(0 if own is None else shape[d] for d, own in enumerate(cut))


def counted(work: Smaller, x: str, indices: Sequence, cuts: Cuts) -> tuple:
    """Indices of which the negative ones in cut dims are counted from the end."""
    shape = work.shape(x)
    return tuple(
        work.where(work.apply("lt", i, 0, dtype="bool"), work.apply("add", i, shape[d], overload="Tensor"), i)
        if i is not None and d in cuts
        else i
        for d, i in enumerate(indices)
    )


def index_put(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part takes the values that are put into it."""
    x, indices, values, accumulate = (*node.args, False)[:4]
    (result,) = node.results
    if len(cuts) > 1:
        return False
    indices = counted(work, x, indices, cuts)
    rows, sizes = rows_of(work, x, indices, cuts)
    args = (x, indices, values, accumulate, rows, sizes)
    work.ends(work.put("put", "partition.index_put_at", args, result.shape, result.dtype), result)
    return True


def embedding_gradient(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part adds the gradients of its own rows."""
    gradient, indices, n, padding, _ = node.args
    (result,) = node.results
    args = (gradient, indices, work.rows(n, cuts["row"]), n, padding)
    work.ends(work.put("at", "partition.embedding_gradient_at", args, result.shape, result.dtype), result)
    return True


def gather(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part gives its own elements."""
    x, dim, indices = node.args[:3]
    (result,) = node.results
    dim %= len(result.shape)
    n = work.shape(x)[dim]
    args = (x, dim, indices, work.rows(n, cuts["row"]), n)
    work.ends(work.put("at", "partition.gather_at", args, result.shape, result.dtype), result)
    return True


def scatter(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each part takes the elements that are put into it, or added to it."""
    if node.target not in ("aten.scatter.value", "aten.scatter.src", "aten.scatter_add.default"):
        return False
    x, dim, indices, source = node.args
    (result,) = node.results
    dim %= len(result.shape)
    n = work.shape(x)[dim]
    args = (x, dim, indices, source, work.rows(n, cuts["row"]), n, "add" in node.target)
    work.ends(work.put("put", "partition.scatter_at", args, result.shape, result.dtype), result)
    return True


# ---- elements that move along a dim


def slice_of(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads another; a single place is the sum of it and of zeros."""
    x, dim, begin, _, step = node.args
    (result,) = node.results
    if result.shape[dim] == 1:
        n = work.shape(x)[dim]
        here = work.between(n, begin, begin + 1, dim, len(result.shape), cuts[dim])
        found = work.where(here, x, work.scalar(0, result.dtype))
        work.ends(work.reduced("sum", found, (dim,)), result)
        return True
    work.ends(work.places(x, dim, result.shape[dim], step, begin), result)
    return True


def pad(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads another; a border of another value than 0 is put in by place."""
    x, border, value = (*node.args, 0)[:3]
    (result,) = node.results
    rank = len(result.shape)
    rest = list(border)
    for k in range(len(border) // 2):
        dim = rank - 1 - k
        if dim in cuts:
            n, size, before = work.shape(x)[dim], result.shape[dim], border[2 * k]
            single = n == 1
            x = work.spread(x, dim, size, before)
            if single or (value != 0 and (before > 0 or border[2 * k + 1] > 0)):
                inside = work.between(size, before, before + n, dim, rank, cuts[dim])
                x = work.where(inside, x, work.scalar(value, result.dtype))
            rest[2 * k] = rest[2 * k + 1] = 0
    if any(rest):
        x = work.put("border", node.target, (x, tuple(rest), value), result.shape, result.dtype)
    work.ends(x, result)
    return True


def flip(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads the one at the same distance from the other end."""
    x, dims = node.args
    (result,) = node.results
    rest = tuple(d for d in dims if d % len(result.shape) not in cuts)
    for dim in cuts:
        x = work.places(x, dim, result.shape[dim], -1, result.shape[dim] - 1)
    if rest:
        x = work.put("rest", node.target, (x, rest), result.shape, result.dtype)
    work.ends(x, result)
    return True


def roll(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads the one before it by the shift."""
    x, shifts, dims = node.args
    (result,) = node.results
    rest = []
    for shift, d in zip(shifts, dims, strict=True):
        dim = d % len(result.shape)
        n = result.shape[dim]
        if dim in cuts:
            x = work.places(x, dim, n, offset=-shift % n, wrap=True)
        else:
            rest.append((shift, dim))
    if rest:
        shifts, dims = zip(*rest, strict=True)
        x = work.put("rest", node.target, (x, shifts, dims), result.shape, result.dtype)
    work.ends(x, result)
    return True


def cat(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place reads that of the operand which has it."""
    operands = node.args[0]
    (result,) = node.results
    rank = len(result.shape)
    dim = (node.args[1] if len(node.args) > 1 else 0) % rank
    n, begins = result.shape[dim], [0]
    for x in operands:
        begins.append(begins[-1] + work.shape(x)[dim])
    if any(work.dtype(x) != result.dtype for x in operands):
        return False
    there = [(x, begin) for x, begin in zip(operands, begins, strict=False) if work.shape(x)[dim]]
    if len(there) < 2:
        return False
    (x, begin), *before = reversed(there)
    joined = work.spread(x, dim, n, begin)
    for x, end in zip(before, [begin, *(b for _, b in before)], strict=False):
        mine = work.spread(x[0], dim, n, x[1])
        joined = work.where(work.between(n, 0, end, dim, rank, cuts[dim]), mine, joined)
    work.ends(joined, result)
    return True


def into(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Each place of the part reads the part, others x."""
    x, part = node.args[:2]
    (result,) = node.results
    rank = len(result.shape)
    dim = node.args[2] % rank
    n = result.shape[dim]
    begin = node.args[3] if len(node.args) > 3 and node.args[3] is not None else 0
    begin = max(begin + n, 0) if begin < 0 else min(begin, n)
    if operation(node.target) == "select_scatter":
        part = work.view(part, [1 if d == dim else m for d, m in enumerate(result.shape)])
    size = work.shape(part)[dim]
    if not size:
        return False
    placed = work.spread(part, dim, n, begin)
    work.ends(work.where(work.between(n, begin, begin + size, dim, rank, cuts[dim]), placed, x), result)
    return True


def diagonal_part(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Zeros where the column is beyond the diagonal of its row."""
    x, diagonal = (*node.args, 0)[:2]
    (result,) = node.results
    rank = len(result.shape)
    rows, columns = (
        work.along(work.rows(result.shape[d], cuts.get(d)), d, rank) for d in (rank - 2, rank - 1)
    )
    apart = work.apply("sub", columns, rows)
    kept = work.apply("le" if operation(node.target) == "tril" else "ge", apart, diagonal, dtype="bool")
    work.ends(work.where(kept, x, work.scalar(0, result.dtype)), result)
    return True


# ---- sums up to a place


def cumsum(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Sums within blocks; the sums of the blocks before each block are added by the tree over all blocks."""
    x, dim = node.args[:2]
    (result,) = node.results
    dim %= len(result.shape)
    starts = work.starts(cuts[dim])
    if starts is None:
        return False
    if work.dtype(x) != result.dtype:
        kwargs = (("dtype", f"torch.{result.dtype}"),)
        x = work.put("as", "aten._to_copy.default", (x,), result.shape, result.dtype, kwargs)
    rows = work.rows(result.shape[dim], cuts[dim])
    inner = work.put("inner", "partition.scan_blocks", (x, rows, dim, starts), result.shape, result.dtype)
    by_block = [len(starts) if d == dim else n for d, n in enumerate(result.shape)]
    before = work.put("before", "partition.scan_before", (inner, rows, dim, starts), by_block, result.dtype)
    args = (inner, before, rows, dim, starts)
    work.ends(work.put("after", "partition.scan_after", args, result.shape, result.dtype), result)
    return True


# ---- attention


def attention(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """Causal attention by a mask, since the local queries do not begin with the first key."""
    at = 7 if "backward" in node.target else 4
    kwargs = dict(node.kwargs)
    if kwargs.get("attn_mask") is not None or not node.args[at]:
        return False
    q, k = node.args[1:3] if at == 7 else node.args[:2]
    queries, keys, dtype = work.shape(q)[2], work.shape(k)[2], work.dtype(q)
    rows = work.along(work.rows(queries, cuts["q"]), 0, 2)
    columns = work.along(work.made("keys", "aten.arange.default", (keys,), (keys,), "int64"), 1, 2)
    seen = work.apply("ge", rows, columns, dtype="bool")
    kwargs["attn_mask"] = work.where(seen, work.scalar(0.0, dtype), work.scalar(-inf, dtype))
    args = (*node.args[:at], False, *node.args[at + 1 :])
    work.nodes.append(changed(node, args=args, kwargs=tuple(kwargs.items())))
    return True


# ---- pooled images


def beyond(n: int, m: int, kernel: int, stride: int, padding: int, dilation: int) -> int:
    """The places that m windows read after n, negative for places that they do not reach."""
    return (m - 1) * stride + (kernel - 1) * dilation + 1 - n - padding


def exceeds(image, count, kernel, stride, padding) -> bool:
    """Whether windows read beyond the border of an image, by `ceil_mode`."""
    after = [beyond(*each, 1) for each in zip(image, count, kernel, stride, padding, strict=True)]
    return any(n > p for n, p in zip(after, padding, strict=True))


def borders(image, count, kernel, stride, padding, dilation) -> tuple[int, ...]:
    """The places before and after an image that windows read, as `constant_pad_nd` takes them."""
    after = [beyond(*each) for each in zip(image, count, kernel, stride, padding, dilation, strict=True)]
    return tuple(side for d in reversed(range(len(after))) for side in (padding[d], after[d]))


def max_pool(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The largest element of each window of an image with borders, and its number in the window."""
    kernel, stride, padding, more = pooled(node, 1)
    dilation = both(more[0] if more else 1)
    result, x = node.results[0], node.args[0]
    border = borders(work.shape(x)[-2:], result.shape[-2:], kernel, stride, padding, dilation)
    if any(border):
        x = bordered(work, x, border, -inf)
    how = (x, kernel, stride, dilation)
    names = {tensor.name.rpartition(".")[2]: tensor for tensor in node.results}
    if "1" in names:
        which = work.put("which", "partition.pool_which", how, result.shape, "int64")
        work.which["%" + names["1"].name] = which
    if "0" in names:
        work.ends(work.put("top", "partition.pool_max", how, result.shape, result.dtype), names["0"])
    return True


def bordered(work: Smaller, x: str, border: Sequence[int], value: float) -> str:
    """x with places around its last dims."""
    shape = list(work.shape(x))
    for k in range(len(border) // 2):
        shape[-1 - k] += border[2 * k] + border[2 * k + 1]
    return work.put("border", "aten.constant_pad_nd.default", (x, tuple(border), value), shape, work.dtype(x))


def max_pool_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The gradients of windows, at the places of their largest elements."""
    kernel, stride, padding, more = pooled(node, 2)
    dilation = both(more[0] if len(more) > 2 else 1)
    gradient, which = node.args[0], work.which[node.args[-1]]
    (result,) = node.results
    border = borders(result.shape[-2:], work.shape(gradient)[-2:], kernel, stride, padding, dilation)
    shape = [
        *result.shape[:-2],
        *(n + border[2 * k] + border[2 * k + 1] for n, k in zip(result.shape[-2:], (1, 0), strict=True)),
    ]
    args = (gradient, which, kernel, stride, dilation)
    found = work.put("spread", "partition.pool_max_gradient", args, shape, result.dtype)
    if any(border):
        found = bordered(work, found, [-side for side in border], 0)
    work.ends(found, result)
    return True


def avg_pool(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """A convolution of each channel by ones, divided by the number of elements."""
    kernel, stride, padding, more = pooled(node, 1)
    x, (result,) = node.args[0], node.results
    image, count = work.shape(x)[-2:], result.shape[-2:]
    if exceeds(image, count, kernel, stride, padding):
        return False
    lead = prod(result.shape[:-2])
    x = work.view(x, (lead, 1, *image))
    how = (stride, padding, (1, 1), False, (0, 0), 1)
    args = (x, ones(work, kernel, result.dtype), None, *how)
    total = work.put("sum", "aten.convolution.default", args, (lead, 1, *count), result.dtype)
    total = work.view(total, result.shape)
    work.ends(divided(work, total, cuts, image, count, kernel, stride, padding, more), result)
    return True


def avg_pool_backward(work: Smaller, node: Node, cuts: Cuts) -> bool:
    """The gradient of such a convolution."""
    kernel, stride, padding, more = pooled(node, 2)
    gradient, (result,) = node.args[0], node.results
    image, count = result.shape[-2:], work.shape(gradient)[-2:]
    if exceeds(image, count, kernel, stride, padding):
        return False
    gradient = divided(work, gradient, cuts, image, count, kernel, stride, padding, more)
    lead = prod(result.shape[:-2])
    gradient = work.view(gradient, (lead, 1, *count))
    args = (gradient, ones(work, kernel, result.dtype), stride, padding, (1, 1), False, (0, 0), 1)
    found = work.put("sum", "partition.conv_input_gradient", args, (lead, 1, *image), result.dtype)
    work.ends(work.view(found, result.shape), result)
    return True


def ones(work: Smaller, kernel: Sequence[int], dtype: str) -> str:
    """A window of ones."""
    shape = (1, 1, *kernel)
    return work.made("ones", "aten.full.default", (shape, 1), shape, dtype, (("dtype", f"torch.{dtype}"),))


def divided(work: Smaller, x: str, cuts: Cuts, image, count, kernel, stride, padding, more: Sequence) -> str:
    """x divided by the number of elements of each window: given, or with the border, or without it."""
    _, with_border, divisor = (*more, *(False, True, None)[len(more) :])[:3]
    if divisor is not None or with_border or not any(padding):
        return work.apply("div", x, prod(kernel) if divisor is None else divisor)
    numbers = []
    for d, (n, m, k, s, p) in enumerate(zip(image, count, kernel, stride, padding, strict=True)):
        rows = work.rows(m, cuts.get(len(work.shape(x)) - 2 + d))
        first = work.apply("sub", work.apply("mul", rows, s), p)
        end = work.apply("clamp_max", work.apply("add", first, k), n, overload="default")
        begin = work.apply("clamp_min", first, 0, overload="default")
        numbers.append(work.along(work.apply("sub", end, begin), d, 2))
    size = work.apply("mul", *numbers)
    kwargs = (("dtype", f"torch.{work.dtype(x)}"),)
    size = work.put("size", "aten._to_copy.default", (size,), work.shape(size), work.dtype(x), kwargs)
    return work.apply("div", x, size)


SMALLER: dict[str, Callable[[Smaller, Node, Cuts], bool]] = {
    **dict.fromkeys(("_softmax", "_log_softmax"), softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), softmax_backward),
    "logsumexp": logsumexp,
    "native_layer_norm": layer_norm,
    "native_layer_norm_backward": layer_norm_backward,
    "embedding": embedding,
    "embedding_dense_backward": embedding_gradient,
    "index_select": index_select,
    **dict.fromkeys(("index", "_unsafe_index"), index),
    **dict.fromkeys(("index_put", "_unsafe_index_put"), index_put),
    "gather": gather,
    **dict.fromkeys(("scatter", "scatter_add"), scatter),
    "slice": slice_of,
    "constant_pad_nd": pad,
    "flip": flip,
    "roll": roll,
    "cat": cat,
    **dict.fromkeys(("select_scatter", "slice_scatter"), into),
    **dict.fromkeys(("tril", "triu"), diagonal_part),
    "cumsum": cumsum,
    "_scaled_dot_product_flash_attention_for_cpu": attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": attention,
    POOL: max_pool,
    POOL_BACK: max_pool_backward,
    "avg_pool2d": avg_pool,
    "avg_pool2d_backward": avg_pool_backward,
}
