"""Propagates axes from annotated tensors through the graph, forward and backward, to a fixed point.

Axes of the lowest user priority number propagate first: through operations on elements and shapes, then also through
normalisations and lookups, then also through contractions and windows, at last along dims that an operation needs whole
unless it is written in smaller ones (`smaller`). A tensor keeps its first axis; a later axis must
agree, or stops there. Annotated tensors never change. The result is a preferred cut of each value; `decide` chooses the
cut of each operation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from miniapps.partition.cuts.axes import Cut, axes_of, is_cut, merge, whole
from miniapps.partition.graphs.graph import Graph, Node, Tensor
from miniapps.partition.planning.annotate import Annotated, require_agreement
from miniapps.partition.rules import Rule, rule
from miniapps.partition.rules.factors import CONTRACTING, Labels
from miniapps.partition.rules.project import Assignment, Axes, cut_of, fitting, take

PARTING = CONTRACTING + 1  # the priority of dims that only smaller operations can cut


class Ruled:
    """A node with its rule, its operands (`read`) and its results (`made`)."""

    __slots__ = ("made", "node", "read", "rule", "tensors")

    def __init__(self, node: Node, values: dict[str, Tensor], known: dict):
        self.node = node
        self.read = tuple(values[name] for name in node.operands())
        self.made = node.results
        self.tensors = (*self.read, *self.made)
        # Layers repeat: rules depend on shapes and arguments, not on names.
        key = (
            node.target,
            anonymous(node.args),
            tuple((t.shape, t.dtype) for t in self.tensors),
            self._numbers(),
        )
        if key not in known:
            known[key] = rule(node, self.read)
        self.rule: Rule = known[key]

    def _numbers(self):
        return tuple(tensor.name.rpartition(".")[2] for tensor in self.made) if len(self.made) > 1 else ()

    def labels(self) -> tuple[Labels, ...]:
        """The labels of operands and results."""
        return (*self.rule.operands, *self.rule.results)

    def shapes(self):
        """Pairs of labels and shape, of operands and results."""
        return zip(self.labels(), (tensor.shape for tensor in self.tensors), strict=True)


def anonymous(argument):
    """An argument without the names of tensors."""
    if isinstance(argument, tuple):
        return tuple(anonymous(part) for part in argument)
    if isinstance(argument, str) and argument.startswith("%"):
        return "%"
    return (type(argument).__name__, argument)  # 1 and True are equal, but different arguments


def ruled(graph: Graph) -> list[Ruled]:
    """The nodes of a graph with their rules."""
    values, known = graph.tensors(), dict[tuple, Rule]()
    return [Ruled(node, values, known) for node in graph.nodes]


def propagate(
    graph: Graph, nodes: Sequence[Ruled], axes: Axes, annotated: Iterable[Annotated]
) -> dict[str, Cut]:
    """The preferred cut of each value. Raises AnnotationError for conflicting annotations."""
    flowing = [a for a in annotated if not a.stored]
    check_conflicts(nodes, flowing, axes)
    state = _Flow(graph, nodes, axes, {a.name for a in flowing})
    for priority in sorted({a.priority for a in flowing}):
        for a in flowing:
            if a.priority == priority:
                state.cuts[a.name] = a.cut
        for operations in range(CONTRACTING + 1):
            state.run(operations)
        state.lead(graph, flowing)
        state.run(PARTING)
    return state.cuts


def wished(ruled: Ruled, rule: Rule, wishes: Mapping[str, Cut], axes: Axes) -> Assignment:
    """The cuts of the labels of a rule that follow from those of the tensors."""
    assignment: Assignment = {}
    for labels, tensor in zip(ruled.labels(), ruled.tensors, strict=True):
        take(rule, labels, wishes[tensor.name], assignment, axes)
    return fitting(rule, assignment, ruled.shapes, axes)


class _Flow:
    """The cuts so far, and the nodes beside each value."""

    def __init__(self, graph: Graph, nodes: Sequence[Ruled], axes: Axes, fixed: set[str]):
        self.nodes, self.axes, self.fixed = nodes, axes, fixed
        self.cuts: dict[str, Cut] = {name: whole(tensor.shape) for name, tensor in graph.tensors().items()}
        # Layers repeat: nodes of one rule whose tensors have equal cuts wish equal ones.
        self.known: dict[tuple, tuple[Cut, ...]] = {}
        self.beside: dict[str, list[int]] = {name: [] for name in self.cuts}
        for k, node in enumerate(nodes):
            for name in dict.fromkeys(tensor.name for tensor in node.tensors):
                self.beside[name].append(k)

    def run(self, operations: int) -> None:
        """Propagate to a fixed point, through nodes of this priority or an earlier one."""
        waiting = deque(
            k for k, node in enumerate(self.nodes)
            if node.rule.priority <= operations and (node.rule.cuttable or operations == PARTING)
        )  # fmt: skip
        queued = set(waiting)
        while waiting:
            k = waiting.popleft()
            queued.discard(k)
            node = self.nodes[k]
            for name in self.visit(node, node.rule.opened if operations == PARTING else node.rule):
                for other in self.beside[name]:
                    if other not in queued and other != k and self.nodes[other].rule.priority <= operations:
                        queued.add(other)
                        waiting.append(other)

    def lead(self, graph: Graph, annotated: Iterable[Annotated]) -> None:
        """Gradients that are made by adding at indices, which tell nothing of rows, get the cut of their parameter."""
        made = {tensor.name for node in self.nodes if node.rule.kernel == "scatter" for tensor in node.made}
        cuts = {a.key: a.cut for a in annotated}
        for key, name in graph.gradients:
            if key in cuts and name in made:
                self.cuts[name] = self.extended(self.cuts[name], cuts[key])

    def visit(self, node: Ruled, rule: Rule) -> list[str]:
        """Propagate axes between the tensors of a node; returns the names of changed tensors."""
        cuts = [self.cuts[tensor.name] for tensor in node.tensors]
        if not any(is_cut(dim) for cut in cuts for dim in cut):
            return []
        key = (id(rule), *cuts)
        if key not in self.known:
            assignment = wished(node, rule, self.cuts, self.axes)
            self.known[key] = tuple(
                cut_of(labels, shape, assignment, rule.sizes, self.axes) if assignment else old
                for (labels, shape), old in zip(node.shapes(), cuts, strict=True)
            )
        changed = []
        for tensor, old, wish in zip(node.tensors, cuts, self.known[key], strict=True):
            if tensor.name in self.fixed:
                continue
            new = self.extended(self.cuts[tensor.name], wish)
            if new != old:
                self.cuts[tensor.name] = new
                changed.append(tensor.name)
        return changed

    def extended(self, old: Cut, wish: Cut) -> Cut:
        """`old` extended by `wish`; an axis in `old`, or another of its slot, stays in its place."""
        if old == wish:
            return old
        slots = {self.axes.slots[axis] for axis in axes_of(old)}
        new = []
        for dim, wanted in zip(old, wish, strict=True):
            merged = merge(dim, wanted) if is_cut(wanted) else dim
            if merged is not None and merged != dim:
                had = {axis for _, axis in dim}
                added = [self.axes.slots[axis] for _, axis in merged if axis is not None and axis not in had]
                if not slots & set(added):
                    slots |= set(added)
                    dim = merged
            new.append(dim)
        return tuple(new)


def check_conflicts(nodes: Sequence[Ruled], annotated: Iterable[Annotated], axes: Axes) -> None:
    """Raise AnnotationError for annotations that contradict each other; follows them only through views."""
    origins: dict[str, tuple[Annotated, Cut]] = {a.name: (a, a.cut) for a in annotated}
    for node in nodes:
        found = [origins.get(tensor.name) for tensor in node.read]
        if sum(origin is not None for origin in found) > 1:
            require_agreement(node.node, node.rule, found)
        if (
            len(node.read) == 1
            and found[0] is not None
            and node.rule.kernel == "view"
            and len(node.made) == 1
        ):
            assignment: Assignment = {}
            annotation, cut = found[0]
            take(node.rule, node.rule.operands[0], cut, assignment, axes)
            (result,) = node.made
            moved = cut_of(node.rule.results[0], result.shape, assignment, node.rule.sizes, axes)
            origins[result.name] = annotation, moved
