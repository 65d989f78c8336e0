"""Finds pairs of linear layers that tensor parallelism cuts without a message between them (Megatron-LM, Shoeybi et al.
2019, arXiv 1909.08053): the first by its rows, the second by its columns.

The second layer's input must follow from results of first layers through operations on elements, shapes and attention
alone, none of which needs all features. Features are cut into `extent` equal parts, so that heads stay whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from miniapps.partition.cuts.axes import Cut, axes_of, evenly
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.planning.propagate import Ruled, ruled
from miniapps.partition.rules.factors import CONTRACTING
from miniapps.partition.rules.project import Assignment, Axes, cut_of, take

FEATURES = "features"
MOST_PARTS = 64  # parts of features that are tried


@dataclass(frozen=True)
class Pair:
    """The `second` layer's weight, and the weights and biases of first layers before it, with their cuts."""

    second: str
    cuts: Mapping[str, Cut]

    def firsts(self) -> list[str]:
        """The matrices of the first layers."""
        return [key for key, cut in self.cuts.items() if key != self.second and len(cut) > 1]


@dataclass(frozen=True)
class Pairs:
    """All pairs of a graph for one `extent`, and for each other linear layer the reason why it has no pair; `unequal`:
    layers whose inputs are not `extent` equal parts."""

    extent: int
    unequal: int
    found: tuple[Pair, ...]
    reasons: Mapping[str, str]

    def annotations(self) -> dict[str, tuple[str | None, ...]]:
        """{parameter: an axis or None per dim}, without parameters in which features are not major: propagation cuts
        these."""
        given: dict[str, tuple[str | None, ...]] = {}
        for pair in self.found:
            for key, cut in pair.cuts.items():
                dims = tuple(FEATURES if FEATURES in axes_of((dim,)) else None for dim in cut)
                if all(dim[0][1] == FEATURES for dim, axis in zip(cut, dims, strict=True) if axis):
                    given[key] = dims
        return given


class Unpaired(Exception):
    """A linear layer is not the second of a pair; the message says why."""


class Unequal(Unpaired):
    """Its inputs are not equal parts."""


def best(graph: Graph) -> Pairs:
    """The pairs for the number of parts that gives the most pairs; of equal ones the one that most layers can be cut
    into, then the largest."""
    nodes = ruled(graph)
    depths = {node.read[0].shape[1] for node in nodes if node.node.target == "aten.mm.default"}
    tried = [n for n in range(2, MOST_PARTS + 1) if any(depth % n == 0 for depth in depths)] or [2]
    found = [pairs(graph, n, nodes) for n in tried]
    return max(found, key=lambda each: (len(each.found), -each.unequal, each.extent))


def pairs(graph: Graph, extent: int, nodes: Sequence[Ruled] | None = None) -> Pairs:
    """The pairs whose features can be cut into `extent` equal parts, in the order of the step."""
    finder, unequal = Finder(graph, extent, ruled(graph) if nodes is None else nodes), 0
    found: list[Pair] = []
    reasons: dict[str, str] = {}
    for node in finder.forward:
        if node.node.target == "aten.mm.default" and (key := finder.parameter(node.read[1].name)):
            try:
                pair = finder.pair(node, key)
            except Unpaired as reason:
                unequal += isinstance(reason, Unequal)
                reasons.setdefault(key, str(reason))
                continue
            finder.keep(pair)
            found.append(pair)
    paired = {key for pair in found for key in pair.cuts}
    return Pairs(
        extent, unequal, tuple(found), {key: why for key, why in reasons.items() if key not in paired}
    )


class Finder:
    """The forward pass of a graph, and the parameters that pairs cut so far."""

    def __init__(self, graph: Graph, extent: int, nodes: Sequence[Ruled]):
        self.extent = extent
        self.axes = Axes([evenly(FEATURES, extent, extent)])
        self.sources = {source.tensor.name: source for source in graph.sources}
        self.maker = {tensor.name: node for node in nodes for tensor in node.made}
        self.cuts: dict[str, Cut] = {}
        self.seconds: set[str] = set()
        needed, waiting = set(), [graph.loss]
        while waiting:
            node = self.maker.get(waiting.pop())
            if node is not None and node.node.name not in needed:
                needed.add(node.node.name)
                waiting += [tensor.name for tensor in node.read]
        self.forward = [node for node in nodes if node.node.name in needed]
        self.readers: dict[str, list[Ruled]] = {}
        for node in self.forward:
            for name in dict.fromkeys(tensor.name for tensor in node.read):
                self.readers.setdefault(name, []).append(node)

    def parameter(self, name: str) -> str:
        """The key of the parameter of which a value is a view; "" for other values."""
        while (node := self.maker.get(name)) is not None:
            if node.rule.kernel != "view" or len(node.read) != 1:
                return ""
            name = node.read[0].name
        source = self.sources[name]
        return source.key if source.kind == "parameter" else ""

    def keep(self, pair: Pair) -> None:
        """Let later pairs cut no parameter of this one otherwise."""
        self.cuts.update(pair.cuts)
        self.seconds.add(pair.second)

    def pair(self, product: Ruled, key: str) -> Pair:
        """The pair whose second layer is this product with the parameter `key`. Raises Unpaired."""
        depth = product.read[0].shape[1]
        if depth % self.extent or depth == self.extent == 1:
            raise Unequal(f"its {depth} inputs are not {self.extent} equal parts")
        if key in self.cuts:
            raise Unpaired("it is the first of another pair")
        label = product.rule.operands[0][1][0]
        assignment: Assignment = {label: self.dim(depth)}
        cuts: dict[str, Cut] = {}
        seen: dict[str, Cut] = {}
        for tensor, labels in zip(product.read, product.rule.operands, strict=True):
            self.trace(
                tensor.name,
                cut_of(labels, tensor.shape, assignment, product.rule.sizes, self.axes),
                cuts,
                seen,
            )
        for name in seen.keys() & self.maker.keys():
            for reader in self.readers[name]:
                if reader is not product and not any(tensor.name in seen for tensor in reader.made):
                    raise Unpaired(f"{said(reader)} uses its input too")
        return Pair(key, cuts)

    def dim(self, size: int):
        """A dim of features."""
        minor = size // self.extent
        return ((self.extent, FEATURES), (minor, None)) if minor > 1 else ((self.extent, FEATURES),)

    def trace(self, name: str, cut: Cut, cuts: dict[str, Cut], seen: dict[str, Cut]) -> None:
        """Follow the cut of a value back to parameters, which go into `cuts`. Raises Unpaired."""
        if seen.setdefault(name, cut) != cut:
            raise Unpaired("its input is used in two arrangements of features")
        node = self.maker.get(name)
        if node is None:
            self.take(name, cut, cuts)
            return
        (labels,) = (
            labels for labels, tensor in zip(node.rule.results, node.made, strict=True) if tensor.name == name
        )
        shape = next(tensor.shape for tensor in node.made if tensor.name == name)
        assignment: Assignment = {}
        take(node.rule, labels, cut, assignment, self.axes)
        if cut_of(labels, shape, assignment, node.rule.sizes, self.axes) != cut:
            raise Unpaired(f"its input comes through {said(node)}")
        if node.rule.kernel == "lookup" or any(reach.label in assignment for reach in node.rule.reaches):
            raise Unpaired(f"its input comes through {said(node)}")
        of_weight = self.parameter(node.read[-1].name) if node.rule.priority == CONTRACTING else ""
        if of_weight in self.seconds:
            raise Unpaired(f"its input comes from {of_weight}, the second of a pair")
        if of_weight and node.rule.kernel != "matmul":
            raise Unpaired(f"its input comes through {said(node)}")
        for tensor, of in zip(node.read, node.rule.operands, strict=True):
            before = cut_of(of, tensor.shape, assignment, node.rule.sizes, self.axes)
            if axes_of(before):
                self.trace(tensor.name, before, cuts, seen)

    def take(self, name: str, cut: Cut, cuts: dict[str, Cut]) -> None:
        """Note the cut of a parameter. Raises Unpaired for another source, and for a contradiction."""
        source = self.sources[name]
        if source.kind != "parameter":
            where = f"input {source.key}" if source.kind == "input" else f"the {source.kind} {source.key}"
            raise Unpaired(f"its input comes from {where}, not from a linear layer")
        if len(self.readers[name]) > 1 and len(cut) > 1:
            raise Unpaired(f"{source.key} is used in several places")
        if self.cuts.get(source.key, cut) != cut or cuts.setdefault(source.key, cut) != cut:
            raise Unpaired(f"{source.key} would need two cuts")


def said(node: Ruled) -> str:
    """An operation and its module."""
    name = node.node.target.split(".")[1].removeprefix("native_").lstrip("_")
    return f"{name} of {node.node.where}" if node.node.where else name
