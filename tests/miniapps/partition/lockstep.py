"""Programs of all ranks of a mesh in one process, each value compared, bit by bit, with that of one rank that has all
blocks.

    compare(plan, ranks, values)      raises AssertionError at the first value that differs

What comes from other ranks, and every total, is taken from the run of one rank: so each step has equal operands, and
what it makes must be equal, whatever part of it a rank makes. That totals are equal is what tests of `block-tree` say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from miniapps.partition.cuts.axes import Axis, axes_of
from miniapps.partition.cuts.steps import Plan, Reduce
from miniapps.partition.execution.bind import bind
from miniapps.partition.execution.bound import Added, Moved
from miniapps.partition.execution.code import Writer
from miniapps.partition.execution.compute import Kernels
from miniapps.partition.execution.place import Halo
from miniapps.partition.execution.totals import Total


@dataclass(frozen=True)
class Owned:
    """A mesh by the blocks that each rank has of every axis."""

    ranks: Sequence[Mapping[str, tuple[int, ...]]]

    def own(self, axis: Axis, rank: int) -> tuple[int, ...]:
        """The blocks of a rank."""
        return self.ranks[rank][axis.name]

    def owners(self, axis: Axis) -> np.ndarray:
        """The place of each block's owner along the axis."""
        places = list(dict.fromkeys(rank[axis.name] for rank in self.ranks))
        return np.array([next(k for k, own in enumerate(places) if b in own) for b in range(axis.blocks)])

    def comes_home(self, axes, axis: str) -> bool:
        """Totals are given, so they may be anywhere."""
        return len(self.ranks) > 1


def program(plan: Plan, mesh: Owned, rank: int, values, level: str, shapes: str, moved, total, watch):
    """Run the program of a rank; `values`: of the sources, whole."""
    bound = bind(plan, mesh, rank, by_block=True, merge=False, padded=shapes == "padded")
    writer = Writer(bound, Kernels(level), lambda s: moved(bound, s), lambda s: total(bound, s), watch(bound))
    given = [part(bound.place, plan.values[s.tensor.name], values[s.tensor.name]) for s in plan.sources]
    with torch.no_grad():
        writer.lines.compiled(writer.text([]), "<lockstep>")(given, 1)


def part(place, value, whole: torch.Tensor, wanted=None) -> torch.Tensor:
    """The wanted places of a value, by default those of its cut; zeros for padding."""
    for d, (dim, n) in enumerate(zip(wanted or value.cut, value.shape, strict=True)):
        index = place.indices(dim, n)
        padded = place.padded or isinstance(dim, Halo)
        if padded or len(index) != whole.shape[d]:  # else all places, ascending
            whole = whole.index_select(d, torch.from_numpy(np.maximum(index, 0) if padded else index))
        if padded and len(outside := np.flatnonzero(index < 0)):
            whole = whole.index_fill(d, torch.from_numpy(outside), 0)
    return whole.contiguous()


def compare(plan: Plan, ranks, values: Mapping[str, torch.Tensor], level="layout", shapes="exact") -> int:
    """The number of values compared."""
    alone = Owned([{axis.name: tuple(range(axis.blocks)) for axis in plan.axes}])
    true: dict = {}

    def keep(bound):
        return lambda name, x: true.__setitem__(
            name, [t.clone() for t in x] if isinstance(x, list) else x.clone()
        )

    def moving(bound, step: Moved, of):
        values = [plan.values[name] for name in step.results if name in plan.values]
        values = values or [plan.values[name] for name in step.operands]
        return lambda *xs: [
            part(bound.place, value, of(name, x), wanted)
            for value, name, x, wanted in zip(values, step.operands, xs, step.wanted, strict=True)
        ]

    def own_part(bound, step: Moved):
        return moving(bound, step, lambda name, x: x)

    def own_total(bound, step: Added):
        return Total(None, "layout", step.rows, step.combine, step.dtype, step.shapes, step.node)

    # Values that a rank may lack: blocks of keys that its queries do not see, and their gradients.
    lacking = {*plan.seen_by, *(r for s in plan.steps if isinstance(s, Reduce) and s.home for r in s.results)}
    program(plan, alone, 0, values, level, "exact", own_part, own_total, keep)
    true.update(values)
    count = 0

    def from_others(bound, step: Moved):
        def whole(name, x):
            return true[step.results[step.operands.index(name)] if plan.values[name].partial else name]

        return moving(bound, step, whole)

    class Given:
        """The totals of one rank that has all blocks."""

        trees, reducer = True, True

        def __init__(self, bound, step):
            self.bound, self.step = bound, step
            self.scatter = lacking.issuperset(step.results) or None  # already where it belongs

        def packers(self, k):
            return [lambda x: None for _ in self.step.rows.subtrees]

        def total(self):
            values, step = plan.values, self.step
            return [
                part(self.bound.place, values[operand], true[result], (wanted if result in lacking else None))
                for operand, result, wanted in zip(step.operands, step.results, step.wanted, strict=True)
            ]

    def check(bound):
        def see(name, x):
            nonlocal count
            if "@halo" in name or (name in lacking and not x.numel()):
                return
            value, place = plan.values[name], bound.place
            if value.partial:
                for number, mine in zip(place.rows(value.partial).numbers, x, strict=True):
                    same(name, place, value, mine, true[name][number])
                    count += 1
            else:
                same(name, place, value, x, true[name])
                count += 1

        return see

    for rank in different(plan, ranks):
        program(plan, Owned(ranks), rank, values, level, shapes, from_others, Given, check)
    return count


def different(plan: Plan, ranks) -> list[int]:
    """The first of all ranks that have the same blocks of each axis that cuts anything: the others run its program, and
    ranks that have all blocks run that of one rank."""
    used = {axis for value in plan.values.values() for axis in (*axes_of(value.cut), *value.partial)}
    cut = [axis for axis in plan.axes if axis.name in used]
    first: dict[tuple, int] = {}
    for rank, own in enumerate(ranks):
        if any(len(own[axis.name]) < axis.blocks for axis in cut):
            first.setdefault(tuple(own[axis.name] for axis in cut), rank)
    return list(first.values())


def same(name: str, place, value, mine: torch.Tensor, whole: torch.Tensor) -> None:
    """Raise AssertionError unless a rank's part has the bits of the whole value, padding aside."""
    expected = part(place, value, whole)
    real = mine
    for d, (dim, n) in enumerate(zip(value.cut, value.shape, strict=True) if place.padded else ()):
        index = place.indices(dim, n)
        if len(index) and index.min() < 0:
            kept = torch.from_numpy(np.flatnonzero(index >= 0))
            real, expected = real.index_select(d, kept), expected.index_select(d, kept)
    assert mine.dtype == whole.dtype or not real.numel(), (
        f"{name}: {mine.dtype} on rank {place.rank}, {whole.dtype} alone"
    )
    if not real.numel():
        return
    a, b = (x.contiguous().numpy().view(np.uint8) for x in (real.reshape(-1), expected.reshape(-1)))
    assert np.array_equal(a, b), (
        f"{name}: rank {place.rank} of other bits, of {value.cut}, partial {value.partial}"
    )
