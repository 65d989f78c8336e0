"""Micro-batches: a step repeats the graph of one micro-batch, and adds losses and gradients in a fixed binary tree.

    graph = repeated(graph, 4)               # of the loss of a micro-batch, divided by 4
    inputs = split(inputs, 4)                # of a step: those of micro-batch 0, then of 1, ...

Node `mm` of micro-batch 2 is `mm#2`. The tree over micro-batches is that of `block-tree`, with an addition as soon as
both of its operands exist. So it depends only on the number of micro-batches. Operations on parameters alone are not
repeated. If a parameter is used several times, the gradient of each use has a tree of its own, and the totals are added
in the order of the backward pass; so no parameter's gradient ties the layers that use it to each other.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace as changed
from typing import Any

from miniapps.partition.graphs.graph import Graph, Node, Source, Tensor, replace
from miniapps.partition.graphs.simplify import RANDOM, operation

COUNTS = ("sum", "amax", "amin")


def split(inputs: Sequence[Any], micro_batches: int) -> tuple[Any, ...]:
    """The inputs of each micro-batch, one micro-batch after the other: equal parts of dim 0 of all `inputs`."""
    if micro_batches == 1:
        return tuple(inputs)
    sizes = [len(x) // micro_batches for x in inputs]
    return tuple(
        x[m * n : (m + 1) * n] for m in range(micro_batches) for x, n in zip(inputs, sizes, strict=True)
    )


def repeated(graph: Graph, micro_batches: int) -> Graph:
    """The graph of a step of several micro-batches, from that of one without updates."""
    return graph if micro_batches == 1 else Repeater(graph, micro_batches).graph()


class Repeater:
    """The nodes of the step so far; `names`: the value of each micro-batch in place of one of the old graph."""

    def __init__(self, graph: Graph, count: int):
        self.old, self.count = graph, count
        self.tensors = graph.tensors()
        self.given, self.learned = reached(graph)
        self.read = graph.readers()
        self.made = {tensor.name: node for node in graph.nodes for tensor in node.results}
        self.names: list[dict[str, str]] = [{} for _ in range(count)]
        self.nodes: list[Node] = []
        self.sources = [s for s in graph.sources if s.kind != "input"]
        self.dropped: set[str] = set()  # additions of the gradients of several uses
        self.terms = {key: self.terms_of(name) for key, name in graph.gradients}

    def graph(self) -> Graph:
        """Returns the whole graph: operations without micro-batch; those on inputs alone; the micro-batches in order;
        the totals."""
        old, micros = self.old, range(self.count)
        inputs = [s for s in old.sources if s.kind == "input"]
        for m in micros:
            for k, source in enumerate(inputs):
                self.sources.append(self.input_of(source, m, m * len(inputs) + k))
        varying = [node for node in old.nodes if self.varies(node)]
        self.nodes += [node for node in old.nodes if not self.varies(node)]
        early = self.counted(varying)
        for m in micros:
            self.repeat((node for node in varying if node.name in early), m, early=True)
        sums = dict.fromkeys((old.loss, *(name for names in self.terms.values() for name in names)))
        for m in micros:
            self.repeat((n for n in varying if n.name not in early and n.name not in self.dropped), m)
            for begin, middle, end in joins(0, self.count):
                if end == m + 1 and (begin, end) != (0, self.count):
                    for name in sums:
                        self.add(name, begin, middle, end, m)
        (root,) = (join for join in joins(0, self.count) if (join[0], join[2]) == (0, self.count))
        for name in sums:
            self.add(name, *root, None)
        gradients = tuple((key, self.total(key, names)) for key, names in self.terms.items())
        loss = self.sum_of(old.loss, 0, self.count)
        return Graph(tuple(self.sources), tuple(self.nodes), loss, gradients)

    def varies(self, node: Node) -> bool:
        """Whether a node has another result in each micro-batch."""
        return any(tensor.name in self.given for tensor in node.results)

    def counted(self, nodes: Sequence[Node]) -> set[str]:
        """The operations that count inputs, such as targets: sums that depend on inputs alone, with what they read.

        They come before all micro-batches, so that ranks can add the counts of all micro-batches at once.
        """
        alone: set[str] = set()  # operations that vary with inputs alone
        for node in nodes:
            before = {self.made[x].name for x in node.operands() if x in self.given and x in self.made}
            drawn = operation(node.target) in RANDOM
            if not drawn and alone.issuperset(before) and not self.learned.intersection(node.operands()):
                alone.add(node.name)
        found: set[str] = set()
        wanted: set[str] = set()
        for node in reversed(nodes):
            counts = operation(node.target) in COUNTS or not wanted.isdisjoint(t.name for t in node.results)
            if node.name in alone and counts:
                found.add(node.name)
                wanted.update(node.operands())
        return found

    def input_of(self, source: Source, m: int, position: int) -> Source:
        """An input of micro-batch m."""
        tensor = changed(source.tensor, name=f"input.{position}")
        self.names[m][source.tensor.name] = tensor.name
        return Source(tensor, "input", str(position))

    def repeat(self, nodes: Iterator[Node], m: int, early: bool = False) -> None:
        """Append nodes of micro-batch m; `early`: before all micro-batches."""
        names = self.names[m]
        for node in nodes:
            name = f"{node.name}#{m}"
            results = tuple(
                changed(tensor, name=name + tensor.name.removeprefix(node.name)) for tensor in node.results
            )
            args = replace(node.args, names)
            kwargs = tuple((key, replace(value, names)) for key, value in node.kwargs)
            self.nodes.append(
                Node(name, node.target, args, kwargs, results, node.where, None if early else m)
            )
            names.update((old.name, new.name) for old, new in zip(node.results, results, strict=True))

    def add(self, name: str, begin: int, middle: int, end: int, m: int | None) -> None:
        """Append the sum of a value over the micro-batches begin ... end - 1, in micro-batch m."""
        pair = (self.sum_of(name, begin, middle), self.sum_of(name, middle, end))
        self.append(self.sum_of(name, begin, end), pair, name, m)

    def append(self, name: str, pair: tuple[str, str], like: str, m: int | None) -> None:
        """Append an addition of two values with the shape of the value `like`."""
        of = self.tensors[like]
        where = self.made[like].where if like in self.made else ""
        result = Tensor(name, of.shape, of.dtype)
        self.nodes.append(
            Node(name, "aten.add.Tensor", tuple("%" + x for x in pair), (), (result,), where, m)
        )

    def sum_of(self, name: str, begin: int, end: int) -> str:
        """The name of the sum of a value over micro-batches; of its value in one micro-batch."""
        return self.names[begin].get(name, name) if end - begin == 1 else f"{name}#{begin}-{end - 1}"

    def terms_of(self, name: str, readers: int = 0) -> list[str]:
        """The gradients of the uses of a parameter, whose sum is the value `name`, which has so many `readers`."""
        node = self.made.get(name)
        if node is None or node.target != "aten.add.Tensor" or node.kwargs or len(self.read[name]) != readers:
            return [name]
        pair = node.operands()
        if len(pair) != 2 or {self.tensors[part].shape for part in pair} != {self.tensors[name].shape}:
            return [name]
        if readers and name in self.old.outputs():  # another parameter's gradient, too
            return [name]
        self.dropped.add(node.name)
        return [term for part in pair for term in self.terms_of(part, 1)]

    def total(self, key: str, names: Sequence[str]) -> str:
        """The gradient of a parameter: the sum of the totals of its uses, from the first to the last."""
        total, *others = (self.sum_of(name, 0, self.count) for name in names)
        for k, other in enumerate(others):
            name = f"{key}#uses{k + 2}"
            self.append(name, (total, other), names[0], None)
            total = name
        return total


def joins(begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The additions (begin, middle, end) of the binary tree over begin ... end - 1, operands first."""
    if end - begin > 1:
        middle = begin + (1 << ((end - begin - 1).bit_length() - 1))
        yield from joins(begin, middle)
        yield from joins(middle, end)
        yield begin, middle, end


def reached(graph: Graph) -> tuple[set[str], set[str]]:
    """Returns (the values that vary with the inputs or are drawn, the values that depend on parameters)."""
    given = {s.tensor.name for s in graph.sources if s.kind == "input"}
    learned = {s.tensor.name for s in graph.sources if s.kind in ("parameter", "buffer")}
    for node in graph.nodes:
        operands, results = node.operands(), {tensor.name for tensor in node.results}
        if operation(node.target) in RANDOM or given.intersection(operands):
            given |= results
        if learned.intersection(operands):
            learned |= results
    return given, learned
