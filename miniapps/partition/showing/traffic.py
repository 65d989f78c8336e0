"""Counts the bytes that ranks send for each step of a plan on a mesh, without running it.

Reductions use `block-tree` and are counted by `kernels.allreduce.cost`. For reshards and halos each rank receives the
elements that it lacks, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate, product
from math import prod

import numpy as np

from kernels.allreduce import Reduction
from kernels.allreduce.cost import cost
from miniapps.partition.cuts.axes import Cut, Dim
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import (
    STAGE,
    Compute,
    Plan,
    Receive,
    Reduce,
    Reshard,
    Send,
    Step,
    Window,
    step_results,
)
from miniapps.partition.graphs.graph import ITEMSIZE
from miniapps.partition.planning.decide import placed
from miniapps.partition.planning.schedule import scheduled


@dataclass(frozen=True)
class Traffic:
    """The messages of a step: `kind` (all-reduce, reduce-scatter, all-gather, all-to-all, permute, halo, send), its
    axes, the number of ranks in a group, and the bytes of all ranks together."""

    kind: str
    axes: tuple[str, ...]
    ranks: int
    nbytes: int


class Counter:
    """Counts messages for one plan on one mesh; None for a step without messages."""

    def __init__(self, plan: Plan, mesh: Mesh):
        self.plan, self.mesh = plan, mesh
        self.axes = {axis.name: axis for axis in plan.axes}
        self.own = [{axis.name: mesh.own(axis, rank) for axis in plan.axes} for rank in range(mesh.size)]
        self.passed = {id(step) for _, step in scheduled(plan, mesh) if isinstance(step, Send)}
        self.places = cache(self._places)
        self.schedule = cache(self._schedule)

    def step(self, step: Step) -> Traffic | None:
        """The messages of a step."""
        if isinstance(step, Reduce):
            return self.reduction(step)
        if isinstance(step, Send | Receive):
            return self.send(step) if id(step) in self.passed else None
        found = self.reshard(step) if isinstance(step, Reshard) else self.halo(step)
        return found if found and found.nbytes else None

    def reduction(self, step: Reduce) -> Traffic | None:
        """The messages of an all-reduce or reduce-scatter, over all groups of ranks that share the axes."""
        groups = {self.mesh.group(step.axes, rank) for rank in self.executing(step)}
        size = len(next(iter(groups)))
        if size == 1:
            return None
        before, after = (
            [self.plan.values[name].cut for name in names] for names in (step.operands, step.results)
        )
        scatter = before != after and all(map(partial(self.mesh.scatters, step.axes), before, after))
        total = 0
        for group in groups:
            bounds = None
            n = sum(self.elements(cut, group[0]) for cut in before)
            if scatter:
                parts = (sum(self.elements(cut, rank) for cut in after) for rank in group)
                bounds = tuple(accumulate(parts, initial=0))
                n = bounds[-1]
            schedule = self.schedule(step.axes, group, n, step.dtype, bounds)
            total += cost(schedule, n, ITEMSIZE[step.dtype]).bytes
        return Traffic("reduce-scatter" if scatter else "all-reduce", step.axes, size, total)

    def _schedule(
        self,
        axes: tuple[str, ...],
        group: tuple[int, ...],
        n: int,
        dtype: str,
        bounds: tuple[int, ...] | None,
    ):
        """The schedule of the block tree over the product of the blocks of `axes`, owned by a group, for n elements;
        `bounds`: of the ranks' parts in a reduce-scatter."""
        owner = {
            blocks: place
            for place, rank in enumerate(group)
            for blocks in product(*(self.own[rank][axis] for axis in axes))
        }
        every = product(*(range(self.axes[axis].blocks) for axis in axes))
        collective = "allreduce" if bounds is None else "reduce-scatter"
        reduction = Reduction("block-tree", (n,), np.dtype(dtype), collective=collective, bounds=bounds)
        return reduction.schedule(len(group), owners=tuple(owner[blocks] for blocks in every))

    def send(self, step: Send | Receive) -> Traffic:
        """The messages of a value from stage to stage: what each rank of the first holds."""
        value = self.plan.values[step.operands[0]]
        partials = [self.own[rank] for rank in self.executing(step)]
        total = sum(
            self.elements(value.cut, rank) * prod(len(own[axis]) for axis in value.partial)
            for rank, own in zip(self.executing(step), partials, strict=True)
        )
        return Traffic("send", (STAGE,), self.ranks((STAGE,)), total * ITEMSIZE[value.dtype])

    def executing(self, step: Step) -> Sequence[int]:
        """The ranks that execute a step: those of its stages; of a message, those that send it."""
        if not self.plan.stages:
            return range(self.mesh.size)
        at = {step.source} if isinstance(step, Send) else set(self.plan.stages[step_results(step)[0]])
        return [rank for rank, own in enumerate(self.own) if not at.isdisjoint(own[STAGE])]

    def reshard(self, step: Reshard) -> Traffic:
        """The messages of a reshard: elements of the new cuts that each rank lacks."""
        values, total, moved = self.plan.values, 0, set()
        for old, new in ((values[o], values[r]) for o, r in zip(step.operands, step.results, strict=True)):
            for rank in self.executing(step):
                wanted = self.elements(new.cut, rank)
                there = prod(
                    len(self.places(a, rank) & self.places(b, rank))
                    for a, b in zip(old.cut, new.cut, strict=True)
                )
                total += (wanted - there) * ITEMSIZE[new.dtype]
            if old.cut != new.cut:
                moved |= {a for dim in (*old.cut, *new.cut) for _, a in placed(dim)}
        axes = tuple(name for name in self.axes if name in moved)
        return Traffic(step.kind, axes, self.ranks(axes), total)

    def halo(self, step: Compute) -> Traffic | None:
        """The messages of a halo: places that windows read beyond a rank's own, corners included."""
        if not step.windows:
            return None
        total = 0
        for operand in dict.fromkeys(window.operand for window in step.windows):
            value = self.plan.values[operand]
            windows = {window.dim: window for window in step.windows if window.operand == operand}
            for rank in self.executing(step):
                own = [self.places(dim, rank) for dim in value.cut]
                read = [
                    self.read(windows[d], value.shape[d], rank) if d in windows else own[d]
                    for d in range(len(own))
                ]
                there = prod(len(a & b) for a, b in zip(own, read, strict=True))
                total += (prod(map(len, read)) - there) * ITEMSIZE[value.dtype]
        axes = tuple(dict.fromkeys(window.axis for window in step.windows))
        return Traffic("halo", axes, self.ranks(axes), total)

    def read(self, window: Window, size: int, rank: int) -> frozenset[int]:
        """The places that a window reads for the blocks of a rank."""
        starts = self.axes[window.axis].at(self.plan.values[window.of].shape[window.of_dim])
        found: set[int] = set()
        for block in self.own[rank][window.axis]:
            low, high = window.needs(starts[block], starts[block + 1])
            if window.wrap:
                found.update(place % size for place in range(low, high))
            else:
                found.update(range(max(low, 0), min(high, size)))
        return frozenset(found)

    def ranks(self, axes: Iterable[str]) -> int:
        """The number of ranks that share the blocks of these axes."""
        carriers = {self.mesh.carrier(axis) for axis in axes} - {None}
        return prod(self.mesh.extent(carrier) for carrier in carriers if carrier)

    def elements(self, cut: Cut, rank: int) -> int:
        """The number of elements of a value that a rank holds."""
        return prod(len(self.places(dim, rank)) for dim in cut)

    def _places(self, dim: Dim, rank: int) -> frozenset[int]:
        """The places of a dim that a rank holds."""
        found = [0]
        for size, axis in dim:
            mine: Iterable[int] = range(size)
            if axis is not None:
                starts = self.axes[axis].at(size)
                mine = [e for b in self.own[rank][axis] for e in range(starts[b], starts[b + 1])]
            found = [major * size + minor for major in found for minor in mine]
        return frozenset(found)
