"""Random operations, shapes and cuts, as small graphs: what `oracle` checks.

    graph, plan, ranks = case(seed)

An operation of one family, then up to three of those that partial sums may pass through, or not. Axes are cut unevenly,
operands at random, and the blocks of an axis belong to ranks in no order.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import torch

from miniapps.partition.cuts.axes import Axis
from miniapps.partition.graphs.graph import Graph, Node, Source, Tensor
from miniapps.partition.planning.annotate import Annotation
from miniapps.partition.planning.plan import plan
from tests.miniapps.partition.oracle import call, concrete

SIZES = (1, 2, 3, 4, 6, 8, 12)


class Draft:
    """A graph that grows; shapes follow from torch's own."""

    def __init__(self, rng: np.random.Generator):
        self.rng, self.sources, self.nodes = rng, [], []
        self.tensors: dict[str, Tensor] = {}

    def source(self, *shape: int, dtype: str = "float32") -> str:
        """A value that is given."""
        tensor = Tensor(f"input.{len(self.sources)}", tuple(int(n) for n in shape), dtype)
        self.tensors[tensor.name] = tensor
        self.sources.append(Source(tensor, "input", str(len(self.sources))))
        return "%" + tensor.name

    def node(self, target: str, *args, shape=None, **kwargs) -> str:
        """The first result of an operation."""
        name = f"n{len(self.nodes)}"
        if shape is None:
            made = call(
                target,
                [on_zeros(a, self.tensors) for a in args],
                {k: on_zeros(v, self.tensors) for k, v in kwargs.items()},
                [None],
            )
            several = len(made) > 1
            results = tuple(
                Tensor(f"{name}.{k}" if several else name, tuple(t.shape), str(t.dtype)[6:])
                for k, t in enumerate(made)
            )
        else:
            results = (Tensor(name, tuple(shape), "float32"),)
        self.tensors.update((tensor.name, tensor) for tensor in results)
        self.nodes.append(Node(name, target, tuple(args), tuple(kwargs.items()), results))
        return "%" + results[0].name

    def size(self) -> int:
        return int(self.rng.choice(SIZES))

    def sizes(self, least: int, most: int) -> tuple[int, ...]:
        return tuple(self.size() for _ in range(self.rng.integers(least, most + 1)))

    def shape(self, value: str) -> tuple[int, ...]:
        return self.tensors[value[1:]].shape

    def dim(self, value: str) -> int:
        return int(self.rng.integers(len(self.shape(value))))

    def one_of(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def each(self, count: int, *choices: int) -> tuple[int, ...]:
        return tuple(int(self.rng.choice(choices)) for _ in range(count))

    def either(self, value: str) -> str:
        """One of the results of the operation that made a value."""
        names = [tensor.name for tensor in self.nodes[-1].results]
        return "%" + self.one_of(*names) if value[1:] in names else value

    def flip(self) -> bool:
        return bool(self.rng.integers(2))


def on_zeros(argument, tensors):
    """An argument as torch takes it, on zeros: of tensors as small as these, faster than torch's rules for shapes."""
    if isinstance(argument, tuple):
        return [on_zeros(part, tensors) for part in argument]
    if isinstance(argument, str) and argument.startswith("%"):
        tensor = tensors[argument[1:]]
        return torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype))
    return concrete(argument, {}, None)


# ---- operations, a function each: from a draft to a value


def pointwise(d: Draft) -> str:
    shape = d.sizes(1, 4)
    other = tuple(1 if d.rng.integers(3) == 0 else n for n in shape)[d.rng.integers(2) :]
    return d.node(
        d.one_of("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor"), d.source(*shape), d.source(*other)
    )


def twice(d: Draft) -> str:
    """One value in two places, which may have to be cut in two ways."""
    n = d.size()
    x = d.source(n, n)
    other = d.one_of(x, d.node("aten.permute.default", x, (1, 0)))
    return d.node(d.one_of("aten.mm.default", "aten.mul.Tensor", "aten.add.Tensor"), x, other)


def function(d: Draft) -> str:
    return d.node(
        d.one_of("aten.gelu.default", "aten.relu.default", "aten.tanh.default"), d.source(*d.sizes(1, 4))
    )


def view(d: Draft) -> str:
    return reshaped(d, d.source(*d.sizes(1, 4)))


def reshaped(d: Draft, x: str) -> str:
    """Other dims of as many elements: neighbours joined, or a dim in two."""
    shape = list(d.shape(x))
    for _ in range(d.rng.integers(1, 4)):
        k = int(d.rng.integers(len(shape))) if shape else 0
        divisors = [n for n in range(1, shape[k] + 1) if shape[k] % n == 0] if shape else [1]
        if d.flip() and k + 1 < len(shape):
            shape[k : k + 2] = [shape[k] * shape[k + 1]]
        elif shape:
            part = int(d.rng.choice(divisors))
            shape[k : k + 1] = [shape[k] // part, part]
    return d.node("aten.view.default", x, tuple(shape), shape=shape)


def permuted(d: Draft, x: str) -> str:
    return d.node("aten.permute.default", x, tuple(d.rng.permutation(len(d.shape(x))).tolist()))


def permute(d: Draft) -> str:
    return permuted(d, d.source(*d.sizes(1, 4)))


def expand(d: Draft) -> str:
    shape = d.sizes(1, 3)
    x = d.source(*(1 if d.flip() else n for n in shape))
    return d.node("aten.expand.default", x, (d.size(), *shape))


def cat(d: Draft) -> str:
    shape, dim = d.sizes(2, 3), 1
    parts = [tuple(d.size() if k == dim else n for k, n in enumerate(shape)) for _ in range(d.one_of(1, 2))]
    return d.node("aten.cat.default", tuple(d.source(*part) for part in (shape, *parts)), dim)


def slice_of(d: Draft) -> str:
    x = d.source(d.size(), 6, d.size())
    if d.rng.integers(4) == 0:
        return d.node("aten.slice.Tensor", x, 1, 4, 5, 1)
    end = int(d.rng.integers(3, 7))
    return d.node("aten.slice.Tensor", x, 1, int(d.rng.integers(0, 3)), end, d.one_of(1, 1, 2))


def pad(d: Draft) -> str:
    shape = d.sizes(2, 3)
    border = d.one_of((1, 2), (0, 1, 2, 0), (-1 if shape[-1] > 1 else 0, 1))
    return d.node("aten.constant_pad_nd.default", d.source(*shape), border, d.one_of(0, 0.5))


def flip(d: Draft) -> str:
    return d.node("aten.flip.default", d.source(*d.sizes(2, 3)), d.one_of((1,), (0, 1)))


def tril(d: Draft) -> str:
    return d.node(
        d.one_of("aten.tril.default", "aten.triu.default"), d.source(*d.sizes(2, 3)), d.one_of(-1, 0, 2)
    )


def create(d: Draft) -> str:
    n = d.size()
    made = d.node("aten.arange.default", n)
    return d.node("aten.mul.Tensor", d.source(d.size(), n), made)


def matmul(d: Draft) -> str:
    i, k, j = d.sizes(3, 3)
    return d.node("aten.mm.default", d.source(i, k), d.source(k, j))


def batched(d: Draft) -> str:
    b, i, k, j = d.sizes(4, 4)
    return d.node("aten.bmm.default", d.source(b, i, k), d.source(b, k, j))


def attention(d: Draft) -> str:
    b, h = d.size(), d.size()
    tokens = int(d.rng.choice([2, 3, 8]))
    q, k, v = (d.source(b, h, tokens, 4) for _ in range(3))
    how = 0.0, d.flip()
    out = d.node("aten._scaled_dot_product_flash_attention_for_cpu.default", q, k, v, *how)
    if d.flip():
        return out
    logs = out.removesuffix(".0") + ".1"
    name = "aten._scaled_dot_product_flash_attention_for_cpu_backward.default"
    return d.either(d.node(name, d.source(b, h, tokens, 4), q, k, v, out, logs, *how))


def total(d: Draft) -> str:
    return summed(d, d.source(*d.sizes(1, 4)))


def summed(d: Draft, x: str) -> str:
    dims = tuple(k for k in range(len(d.shape(x))) if d.flip()) or (0,)
    return d.node("aten.sum.dim_IntList", x, dims, d.flip())


def extreme(d: Draft) -> str:
    x = d.source(*d.sizes(1, 3))
    if d.flip():
        return d.node(d.one_of("aten.max.dim", "aten.min.dim"), x, d.dim(x), d.flip())
    return d.node(d.one_of("aten.amax.default", "aten.amin.default"), x, (d.dim(x),), d.flip())


def softmax(d: Draft) -> str:
    x = d.source(*d.sizes(1, 3))
    return d.node(d.one_of("aten._softmax.default", "aten._log_softmax.default"), x, d.dim(x), False)


def softmax_backward(d: Draft) -> str:
    shape = d.sizes(1, 3)
    name = d.one_of("aten._softmax_backward_data.default", "aten._log_softmax_backward_data.default")
    return d.node(name, d.source(*shape), d.source(*shape), len(shape) - 1, "torch.float32")


def scan(d: Draft) -> str:
    x = d.source(*d.sizes(1, 3), dtype=d.one_of("float32", "float32", "int64"))
    return d.node("aten.cumsum.default", x, d.dim(x))


def choose(d: Draft) -> str:
    x = d.source(*d.sizes(1, 3))
    return d.node("aten.argmax.default", x, d.dim(x), d.flip())


def layer_norm(d: Draft) -> str:
    shape = d.sizes(2, 4)
    n = shape[-1:]
    if len(shape) > 2 and d.flip():
        n = shape[-2:]
    weights = d.one_of((d.source(*n), d.source(*n)), (d.source(*n), None), (None, None))
    return d.either(d.node("aten.native_layer_norm.default", d.source(*shape), n, *weights, 1e-5))


def layer_norm_backward(d: Draft) -> str:
    shape = d.sizes(2, 4)
    n, rows = shape[-1:], (*shape[:-1], 1)
    x = d.source(*shape), d.source(*shape)
    mean, rstd, weight, bias = d.source(*rows), d.source(*rows), d.source(*n), d.source(*n)
    return d.either(
        d.node("aten.native_layer_norm_backward.default", *x, n, mean, rstd, weight, bias, (True, True, True))
    )


def embedding(d: Draft) -> str:
    return d.node("aten.embedding.default", d.source(8, d.size()), d.source(*d.sizes(1, 2), dtype="int64"))


def embedding_backward(d: Draft) -> str:
    places, width = d.sizes(1, 2), d.size()
    gradient, indices = d.source(*places, width), d.source(*places, dtype="int64")
    return d.node("aten.embedding_dense_backward.default", gradient, indices, 8, d.one_of(-1, 1), False)


def gather(d: Draft) -> str:
    shape = d.sizes(2, 3)
    index = (*shape[:1], 3, *shape[2:])
    return d.node(
        "aten.gather.default", d.source(shape[0], 8, *shape[2:]), 1, d.source(*index, dtype="int64")
    )


def scatter(d: Draft) -> str:
    n = d.size()
    x, place = d.source(n, 6), d.source(n, 1, dtype="int64")
    if d.flip():
        return d.node("aten.scatter.value", x, 1, place, -1.0)
    return d.node(d.one_of("aten.scatter.src", "aten.scatter_add.default"), x, 1, place, d.source(n, 1))


def index_add(d: Draft) -> str:
    n, m = d.size(), d.size()
    return d.node(
        "aten.index_put.default", d.source(6, m), (d.source(n, dtype="int64"),), d.source(n, m), True
    )


def index_select(d: Draft) -> str:
    return d.node(
        "aten.index_select.default", d.source(d.size(), 6, d.size()), 1, d.source(d.size(), dtype="int64")
    )


def index(d: Draft) -> str:
    n, m = d.size(), d.size()
    places = tuple(d.source(*shape, dtype="int64") for shape in ((n, 1), (1, m)))
    indices = d.one_of((None, *places), (places[0], None, places[1]), (None, None, places[0]))
    return d.node("aten.index.Tensor", d.source(4, 6, 8), indices)


def index_put(d: Draft) -> str:
    n, m = d.size(), d.size()
    place = d.source(n, dtype="int64")
    if d.flip():  # of equal places the last value stays: a place for each
        return d.node(
            "aten.index_put.default", d.source(m, 6), (None, d.source(1, dtype="int64")), d.source(m, 1)
        )
    return d.node("aten.index_put.default", d.source(m, 6), (None, place), d.source(m, n), True)


def turned(d: Draft) -> str:
    shifts, dims = d.one_of(((1,), (1,)), ((-2,), (0,)), ((1, 3), (1, 0)), ((5,), ()))
    return d.node("aten.roll.default", d.source(*d.sizes(2, 3)), shifts, dims)


def repeated(d: Draft) -> str:
    n, m = d.size(), d.size()
    return d.node("aten.repeat.default", d.source(n, m), (d.one_of(1, 2), 1, d.one_of(1, 3)))


def part_put(d: Draft) -> str:
    n, m = d.size(), d.size()
    if d.flip():
        return d.node("aten.select_scatter.default", d.source(n, 6, m), d.source(n, m), 1, 2)
    return d.node("aten.slice_scatter.default", d.source(n, 6, m), d.source(n, 3, m), 1, 2, 5)


def rows(d: Draft) -> str:
    x = d.source(*d.sizes(2, 3))
    if d.flip():
        return d.node("aten.logsumexp.default", x, (d.dim(x),), d.flip())
    return d.node("aten.prod.dim_int", x, d.dim(x), d.flip())


def sort(d: Draft) -> str:
    x = d.source(d.size(), 6, d.size())
    return d.node("aten.sort.default", x, 1) if d.flip() else d.node("aten.topk.default", x, 3, 1)


def pooled(d: Draft) -> str:
    return pool_of(d, d.source(d.size(), d.size(), *d.each(2, 6, 8, 12)), d.flip())[0]


def pool_of(d: Draft, x: str, largest: bool) -> tuple[str, tuple]:
    """A pool of an image, and its numbers: windows side by side, overlapping, apart, at the border."""
    kernel, stride = d.each(2, 2, 3), d.each(2, 1, 2, 3, 4)
    padding = tuple(int(d.rng.integers(0, k // 2 + 1)) for k in kernel)
    if largest:
        dilation = d.each(2, 1, 2) if min(d.shape(x)[2:]) > 6 else (1, 1)
        how = kernel, stride, padding, dilation, d.flip()
        return d.node("aten.max_pool2d_with_indices.default", x, *how), how
    how = kernel, stride, padding, d.one_of(False, False, True), d.flip(), d.one_of(None, None, 5)
    return d.node("aten.avg_pool2d.default", x, *how), how


def pool_gradient(d: Draft) -> str:
    largest, x = d.flip(), d.source(d.size(), d.size(), *d.each(2, 6, 8, 12))
    value, how = pool_of(d, x, largest)
    gradient = d.source(*d.shape(value))
    if largest:
        which = value.removesuffix(".0") + ".1"
        return d.node("aten.max_pool2d_with_indices_backward.default", gradient, x, *how, which)
    return d.node("aten.avg_pool2d_backward.default", gradient, x, *how)


def convolution(d: Draft) -> str:
    x, weight, how = convolved(d)
    return d.node("aten.convolution.default", d.source(*x), d.source(*weight), None, *how)


def convolution_gradient(d: Draft) -> str:
    x, weight, how = convolved(d)
    empty = (torch.empty(shape, device="meta") for shape in (x, weight))
    made = torch.ops.aten.convolution(*empty, None, *map(list_of, how)).shape
    if d.flip():
        return d.node("partition.conv_input_gradient", d.source(*made), d.source(*weight), *how, shape=x)
    return d.node("partition.conv_weight_gradient", d.source(*made), d.source(*x), *how, shape=weight)


def list_of(value):
    return list(value) if isinstance(value, tuple) else value


def convolved(d: Draft):
    """Shapes of image and weight, and the numbers of a window of one or two dims: strides up to 3 exceed some."""
    dims = d.one_of(1, 2)
    kernel, stride = d.each(dims, 1, 2, 3, 5), d.each(dims, 1, 2, 3)
    dilation = tuple(1 if k == 5 else int(d.rng.choice([1, 2])) for k in kernel)
    padding = tuple(int(d.rng.integers(0, (k - 1) * s + 1)) for k, s in zip(kernel, dilation, strict=True))
    groups, c, o, transposed = d.one_of(1, 2, 4), d.one_of(1, 2, 4), d.one_of(1, 2, 4), d.flip()
    image = d.size(), groups * c, *d.each(dims, 6, 8, 12)
    weight = (groups * c, o, *kernel) if transposed else (groups * o, c, *kernel)
    return image, weight, (stride, padding, dilation, transposed, (0,) * dims, groups)


FIRST = (
    pointwise, twice, function, view, permute, expand, cat, slice_of, pad, flip, tril, create, matmul, batched,
    attention, total, extreme, softmax, softmax_backward, scan, choose, layer_norm, layer_norm_backward, embedding,
    index, index_put, turned, repeated, part_put, rows, sort, pooled, embedding_backward, gather, scatter,
    index_select, convolution, convolution_gradient, pool_gradient, index_add,
)  # fmt: skip


def follow(d: Draft, x: str) -> str:
    """An operation that may be linear in x."""
    kind = d.rng.integers(7)
    if kind == 0:
        return permuted(d, x)
    if kind == 1:
        return reshaped(d, x)
    if kind == 2 and d.shape(x):
        return summed(d, x)
    if kind == 3:
        return d.node("aten.mul.Tensor", x, 0.5)
    if kind == 4:
        return d.node("aten.add.Tensor", x, d.source(*d.shape(x)))
    if kind == 5:
        return d.node("aten.sub.Tensor", x, d.node("aten.mul.Tensor", x, 3))
    return d.node("aten.neg.default", x)


# ---- cuts


def case(seed: int):
    """(graph, plan, the blocks that each rank has of every axis)."""
    rng = np.random.default_rng(seed)
    d = Draft(rng)
    value = FIRST[seed % len(FIRST)](d)
    if d.tensors[value[1:]].dtype == "float32":
        for _ in range(rng.integers(4)):
            value = follow(d, value)
    graph = Graph(tuple(d.sources), tuple(d.nodes), value[1:], ())
    axes = cut_axes(rng, [n for source in d.sources for n in source.tensor.shape if n > 1])
    together = [tuple(axis.name for axis in axes[:2])] if len(axes) > 1 and rng.integers(3) == 0 else []
    annotations = {}
    for place, source in enumerate(d.sources):
        dims = annotated(rng, source.tensor.shape, axes, *together)
        if any(dims):
            # Priorities, so that annotations never contradict each other.
            annotations[place] = Annotation(dims, priority=place)
    ranks = ranks_of(rng, axes, *together)
    return graph, plan(graph, axes, annotations, together, ring=bool(rng.integers(2))), ranks


def cut_axes(rng, sizes: list[int]) -> tuple[Axis, ...]:
    """Up to three axes of extents that occur among the dims, or divide one, in uneven blocks."""
    found = []
    for k in range(rng.integers(1, 4) if sizes else 0):
        n = int(rng.choice(sizes))
        extent = int(rng.choice([m for m in range(2, n + 1) if n % m == 0]))
        inner = np.flatnonzero(rng.integers(0, 2, extent - 1)) + 1
        found.append(Axis(f"a{k}", (0, *inner.tolist(), extent)))
    return tuple(found)


def annotated(rng, shape: tuple[int, ...], axes: tuple[Axis, ...], together=()) -> tuple[str | None, ...]:
    """An axis for some dims, each axis once, and one of those that never meet."""
    free = list(axes)
    dims: list[str | None] = []
    for n in shape:
        fitting = [axis for axis in free if n % axis.extent == 0 and n > 1]
        axis = fitting[rng.integers(len(fitting))] if fitting and rng.integers(3) else None
        dims.append(None if axis is None else axis.name)
        if axis is not None:
            gone = together if axis.name in together else (axis.name,)
            free = [other for other in free if other.name not in gone]
    return tuple(dims)


def ranks_of(rng, axes: tuple[Axis, ...], together=()) -> list[dict[str, tuple[int, ...]]]:
    """A grid of ranks, with one, two or three along each of its axes, whose blocks are shuffled; some may have none.

    The axes `together` lie along one axis of the grid: nobody has all pairs of their blocks.
    """
    groups = [together] if together else []
    groups += [(axis.name,) for axis in axes if axis.name not in together]
    blocks = {axis.name: axis.blocks for axis in axes}
    along = []
    for group in groups:
        size = rng.integers(1, 4)
        owners = {name: rng.integers(0, size, blocks[name]) for name in group}
        along.append(
            [
                {name: tuple(np.flatnonzero(owner == place).tolist()) for name, owner in owners.items()}
                for place in range(size)
            ]
        )
    return [{name: own for part in parts for name, own in part.items()} for parts in product(*along)]
