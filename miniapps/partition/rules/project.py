"""Converts cuts of tensors to factors of an operation and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise

from miniapps.partition.cuts.axes import Axis, Cut, Dim, canonical, is_cut, merge, split
from miniapps.partition.rules.factors import Label, Labels, Rule

Assignment = dict[Label, Dim]  # cuts of the labels that are cut


class Axes:
    """The axes of a problem; `slots[axis]`: the group of the axis (`together`), else the axis itself."""

    def __init__(self, axes: Iterable[Axis], together: Iterable[Iterable[str]] = ()):
        self.by_name = {axis.name: axis for axis in axes}
        self.place = {name: k for k, name in enumerate(self.by_name)}
        self.slots = {name: name for name in self.by_name}
        for group in together:
            members = [name for name in group if name in self.by_name]
            self.slots.update((name, members[0]) for name in members)
        self._fits: dict[tuple[str, int], bool] = {}

    def fits(self, axis: str, size: int) -> bool:
        """Whether every block has an element of a factor of `size`."""
        known = self._fits.get((axis, size))
        if known is None:
            starts = self.by_name[axis].at(size)
            known = all(a < b for a, b in pairwise(starts))
            self._fits[axis, size] = known
        return known

    def major(self, axis: str, size: int) -> Dim:
        """A dim cut by an axis: in its major factor if the extent divides the size, else by scaled blocks."""
        extent = self.by_name[axis].extent
        return canonical([(extent, axis), (size // extent, None)]) if size % extent == 0 else ((size, axis),)

    def ordered(self, names: Iterable[str]) -> tuple[str, ...]:
        """`names` without repetition, in the order of the problem."""
        return tuple(sorted(set(names), key=self.place.__getitem__))


def parts(rule: Rule, labels: tuple[Label, ...], dim: Dim) -> list[tuple[Label, Dim]]:
    """The cuts of the labels of a dim that follow from its cut; empty if labels cannot be cut so."""
    if len(labels) == 1:
        if labels[0] in rule.windowed:  # the blocks of an axis in the major factor, at any size
            axis = dim[0][1]
            if axis is None or any(other is not None for _, other in dim[1:]):
                return []
            dim = ((rule.sizes[labels[0]], axis),)
        found: list[Dim] | None = [dim]
    else:
        found = split(dim, [rule.sizes[label] for label in labels])
    if found is None:
        return []
    return [
        (label, part)
        for label, part in zip(labels, found, strict=True)
        if label in rule.cuttable and is_cut(part)
    ]


def take(rule: Rule, labels: Labels, cut: Cut, into: Assignment, axes: Axes) -> bool:
    """Adds the cut of one tensor to an assignment, without contradicting parts; returns False if there are any.

    Only one label of an operation may have an axis of each slot; of a dim that several axes cut, the others remain.
    """
    agreed = True
    for of_dim, dim in zip(labels, cut, strict=True):
        if not is_cut(dim):
            continue
        for label, part in parts(rule, of_dim, dim):
            before = into.get(label)
            if part == before:
                continue
            free = _free(part, label, into, axes)
            agreed &= free == part
            merged = free if before is None else merge(before, free)
            if merged is None or len(set(slots := _slots(merged, axes))) < len(slots):
                agreed = False
            elif is_cut(merged):
                into[label] = merged
    return agreed


def _slots(dim: Dim, axes: Axes) -> list[str]:
    return [axes.slots[axis] for _, axis in dim if axis is not None]


def _free(dim: Dim, label: Label, into: Assignment, axes: Axes) -> Dim:
    """The cut of a dim without axes of slots that other labels have."""
    taken = {slot for other, had in into.items() if other != label for slot in _slots(had, axes)}
    if taken.isdisjoint(_slots(dim, axes)):
        return dim
    return canonical(
        [(n, None if axis is not None and axes.slots[axis] in taken else axis) for n, axis in dim]
    )


def fitting(
    rule: Rule,
    assignment: Assignment,
    shapes: Callable[[], Iterable[tuple[Labels, tuple[int, ...]]]],
    axes: Axes,
) -> Assignment:
    """The assignment without windows whose tensors are too small for the blocks."""
    gone = set()
    for reach in rule.reaches:
        dim = assignment.get(reach.label)
        if dim is None:
            continue
        axis = dim[0][1]
        sizes = [
            n
            for labels, shape in shapes()
            for of_dim, n in zip(labels, shape, strict=True)
            if reach.label in of_dim
        ]
        if len(dim) > 1 or axis is None or not all(axes.fits(axis, n) for n in sizes):
            gone.add(reach.label)
    return {label: dim for label, dim in assignment.items() if label not in gone} if gone else assignment


def cut_of(
    labels: Labels,
    shape: tuple[int, ...],
    assignment: Mapping[Label, Dim],
    sizes: Mapping[Label, int],
    axes: Axes,
) -> Cut:
    """The cut of a tensor that follows from an assignment."""
    cut: list[Dim] = []
    for of_dim, n in zip(labels, shape, strict=True):
        if n == 1:
            cut.append(())
        elif len(of_dim) == 1:
            dim = assignment.get(of_dim[0])
            if dim is None:
                cut.append(((n, None),))
            elif len(dim) == 1 and dim[0][1] is not None:
                cut.append(axes.major(dim[0][1], n))
            else:
                cut.append(dim)
        else:
            factors: list = []
            for label in of_dim:
                factors.extend(assignment.get(label) or ((sizes[label], None),))
            cut.append(_joined(factors))
    return tuple(cut)


def _joined(factors: list) -> Dim:
    joined: list = []
    for n, axis in factors:
        if axis is None and joined and joined[-1][1] is None:
            joined[-1] = (joined[-1][0] * n, None)
        else:
            joined.append((n, axis))
    return tuple(joined)
