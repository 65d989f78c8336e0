"""The nodes of smaller operations, as they are written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as changed
from math import prod
from typing import Any

from miniapps.partition.cuts.axes import Dim
from miniapps.partition.graphs.graph import Graph, Node, Tensor, tensors_in
from miniapps.partition.rules.project import Axes

Cuts = Mapping[Any, Dim]


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

    def several(
        self, name: str, target: str, args: tuple, shapes: Sequence[Iterable[int]], dtype: str
    ) -> tuple[str, ...]:
        """Append a node with several results of one dtype; returns their values."""
        name = f"{self.node.name}_{name}"
        while f"{name}.0" in self.tensors:
            name += "_"
        results = tuple(Tensor(f"{name}.{k}", tuple(shape), dtype) for k, shape in enumerate(shapes))
        self.tensors.update((tensor.name, tensor) for tensor in results)
        self.nodes.append(Node(name, target, args, (), results, self.node.where, self.node.micro))
        return tuple("%" + tensor.name for tensor in results)

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
