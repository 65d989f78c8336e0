"""Decides the cut of each operation: the cuts that it needs of its operands, and the cuts of its results.

If all tensors of an operation agree, it takes their cut. If they do not, each tensor in turn gets precedence, and the
results are compared: first by the unused axes of earlier user priorities, then by the bytes that a rank must receive,
with a rank per block. The choice affects bits, so it depends neither on the mesh nor on a clock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from miniapps.partition.cuts.axes import Cut, axes_of, canonical
from miniapps.partition.cuts.steps import SPAN
from miniapps.partition.graphs.graph import ITEMSIZE, Tensor
from miniapps.partition.planning.propagate import Ruled
from miniapps.partition.rules.project import Assignment, Axes, cut_of, fitting, take


@dataclass(frozen=True)
class Decision:
    """The cut of one operation: cuts of operands (`needs`) and results (`gives`), and `fresh`: the axes over which each
    result becomes partial."""

    ruled: Ruled
    assignment: Assignment
    needs: tuple[Cut, ...]
    gives: tuple[Cut, ...]
    fresh: tuple[tuple[str, ...], ...]
    reason: str

    def axes(self) -> set[str]:
        """All axes that cut the operation."""
        return {axis for dim in self.assignment.values() for _, axis in dim if axis is not None}


def decide(
    nodes: Sequence[Ruled],
    sources: Mapping[str, Cut],
    wishes: Mapping[str, Cut],
    axes: Axes,
    priorities: Mapping[str, int],
    outputs: Sequence[str],
) -> list[Decision]:
    """A decision per node, in order; `sources`: cuts of the sources; `wishes`: preferred cut of each value;
    `priorities`: of the axes; `outputs` of the graph.

    An operation that is linear in partial sums passes them on: it wishes no cut by another axis of their slot, which
    would need the sums."""
    cuts, wishes = dict(sources), dict(wishes)
    readers = Counter((*outputs, *(name for node in nodes for name in {tensor.name for tensor in node.read})))
    partial: dict[str, set[str]] = {}  # the axes of values that are partial, for a single reader
    known: dict[tuple, Decision] = {}  # layers repeat: a decision depends on the rule and the cuts
    decisions = []
    for node in nodes:
        given = {k: partial[tensor.name] for k, tensor in enumerate(node.read) if tensor.name in partial}
        held = set().union(*given.values()) if frozenset(given) in node.rule.linear else set()
        others = beside(held, axes)
        for tensor in node.made if others else ():
            wishes[tensor.name] = without(wishes[tensor.name], others)
        key = (id(node.rule), *(cuts[t.name] for t in node.read), *(wishes[t.name] for t in node.made))
        if key not in known:
            known[key] = one(node, cuts, wishes, axes, priorities)
        decision = replace(known[key], ruled=node)
        decisions.append(decision)
        passed = held if decision.axes().isdisjoint(held | others) else set()
        for tensor, cut, fresh in zip(node.made, decision.gives, decision.fresh, strict=True):
            cuts[tensor.name] = cut
            if (over := passed.union(fresh)) and readers[tensor.name] == 1:
                partial[tensor.name] = over
    return decisions


def beside(names: set[str], axes: Axes) -> set[str]:
    """The other axes of the slots of some axes."""
    slots = {axes.slots[name] for name in names}
    return {name for name, slot in axes.slots.items() if slot in slots} - names


def without(cut: Cut, names: set[str]) -> Cut:
    """A cut without these axes."""
    return tuple(canonical([(n, None if axis in names else axis) for n, axis in dim]) for dim in cut)


def one(
    node: Ruled, cuts: Mapping[str, Cut], wishes: Mapping[str, Cut], axes: Axes, priorities: Mapping[str, int]
) -> Decision:
    """The decision on a node whose operands have the cuts in `cuts`."""
    rule = node.rule
    has = [cuts[tensor.name] for tensor in node.read]
    wish = [wishes[tensor.name] for tensor in node.made]
    voices = list(zip(node.labels(), (*has, *wish), strict=True))
    assignment: Assignment = {}
    agreed = True
    for labels, cut in voices:
        agreed &= take(rule, labels, cut, assignment, axes)
    assignment = fitting(rule, assignment, node.shapes, axes)
    decision = of_assignment(node, assignment, axes)
    if not agreed:
        best = given_up(decision, has, priorities), cost(decision, has, wish, axes)
        for first in range(len(voices) - 1, 0, -1):
            other: Assignment = {}
            for labels, cut in (voices[first], *voices[:first], *voices[first + 1 :]):
                take(rule, labels, cut, other, axes)
            rival = of_assignment(node, fitting(rule, other, node.shapes, axes), axes)
            if (price := (given_up(rival, has, priorities), cost(rival, has, wish, axes))) < best:
                decision, best = rival, price
    lost = axes.ordered(
        axis
        for cut, need in zip(has, decision.needs, strict=True)
        for axis in set(axes_of(cut)) - set(axes_of(need))
    )
    if lost:
        why = (
            too_small(node, has, lost, axes)
            or rule.reason
            or f"cut by {', '.join(sorted(decision.axes())) or 'nothing'} instead"
        )
        return replace(decision, reason=f"not cut by {', '.join(lost)}: {why}")
    if rule.reason.startswith("no rule"):
        return replace(decision, reason=rule.reason)
    return decision


def too_small(node: Ruled, has: Sequence[Cut], lost: Sequence[str], axes: Axes) -> str:
    """The first dim of a window with fewer elements than an axis in `lost`, which cuts an operand there, has blocks."""
    for reach in node.rule.reaches:
        label = (reach.label,)
        there = [(k, labels.index(label)) for k, labels in enumerate(node.labels()) if label in labels]
        names = {axis for k, d in there if k < len(has) for _, axis in has[k][d] if axis in lost}
        sizes = [node.tensors[k].shape[d] for k, d in there]
        for axis in axes.ordered(name for name in names if name):
            for n in sizes:
                if not axes.fits(axis, n):
                    return f"{n} elements are too few for the {axes.by_name[axis].blocks} blocks of {axis}"
    return ""


def given_up(decision: Decision, has: Sequence[Cut], priorities: Mapping[str, int]) -> list[int]:
    """The number of unused axes that cut operands, for each user priority in ascending order.

    Empty if all axes have one priority.
    """
    levels = sorted(set(priorities.values()))
    if len(levels) < 2:
        return []
    used = decision.axes()
    lost = [priorities[axis] for cut in has for axis in axes_of(cut) if axis not in used]
    return [lost.count(level) for level in levels]


def of_assignment(node: Ruled, assignment: Assignment, axes: Axes) -> Decision:
    """The decision that follows from an assignment of axes to labels."""
    rule = node.rule
    if not assignment:
        cuts = tuple(cut_of(labels, shape, assignment, rule.sizes, axes) for labels, shape in node.shapes())
        none: tuple[tuple[str, ...], ...] = ((),) * len(node.made)
        return Decision(node, assignment, cuts[: len(node.read)], cuts[len(node.read) :], none, "")
    cuts = tuple(cut_of(labels, shape, assignment, rule.sizes, axes) for labels, shape in node.shapes())
    needs, gives = cuts[: len(node.read)], cuts[len(node.read) :]
    summed = {label for labels in rule.operands for dim in labels for label in dim} & assignment.keys()
    fresh: list[tuple[str, ...]] = []
    for labels in rule.results:
        if rule.kernel == SPAN:  # one of the parts has all of it
            fresh.append(())
            continue
        kept = {label for dim in labels for label in dim}
        gone = (axis for label in summed - kept for _, axis in assignment[label] if axis is not None)
        fresh.append(axes.ordered(gone))
    return Decision(node, assignment, needs, gives, tuple(fresh), "")


def cost(decision: Decision, has: Sequence[Cut], wish: Sequence[Cut], axes: Axes) -> float:
    """Bytes that a rank receives for the operation: for new cuts of operands and results, and for sums of partials."""
    node = decision.ruled
    total = 0.0
    for tensor, old, new in zip(node.read, has, decision.needs, strict=True):
        total += received(tensor, old, new, axes)
    for tensor, new, wanted, partial in zip(node.made, decision.gives, wish, decision.fresh, strict=True):
        total += received(tensor, new, wanted, axes)
        if partial:
            # Reduce-scatter and all-gather (Rabenseifner): twice the vector, minus the rank's own part.
            ranks = blocks(partial, axes)
            total += 2 * nbytes(tensor) / blocks(axes_of(new), axes) * (ranks - 1) / ranks
    return total


def received(tensor: Tensor, old: Cut, new: Cut, axes: Axes) -> float:
    """Bytes that a rank receives to change its part from the cut `old` to `new`, with a rank per block."""
    if old == new:
        return 0.0
    kept = {(d, f) for d, dim in enumerate(old) for f in placed(dim)} & {
        (d, f) for d, dim in enumerate(new) for f in placed(dim)
    }
    before = {axis for _, (_, axis) in kept}
    mine = nbytes(tensor) / blocks(axes_of(new), axes)
    others = [axis for axis in axes_of(old) if axis not in before]
    return mine * (1 - 1 / blocks(others, axes))


def placed(dim) -> list[tuple[int, str]]:
    """The axes of a dim, each with the number of elements in minor factors."""
    behind, found = 1, []
    for n, axis in reversed(dim):
        if axis is not None:
            found.append((behind, axis))
        behind *= n
    return found


def blocks(names: Iterable[str], axes: Axes) -> int:
    """The number of blocks of a product of axes."""
    return prod(axes.by_name[name].blocks for name in names)


def nbytes(tensor) -> int:
    """Bytes of a whole tensor or value."""
    return prod(tensor.shape) * ITEMSIZE[tensor.dtype]
