"""Counts the bytes that ranks send for each step of a plan on a mesh, without running it.

Reductions use `block-tree`, counted as `kernels.allreduce.cost` does. For reshards and halos each rank receives the
elements that it lacks, once.

The parts of a rank follow from its place along each axis of the mesh. So a count for all ranks is an array with one
dim for each axis of the mesh, of length 1 where the axis changes nothing; `Counter.total` adds it up. Layers with equal
cuts are counted once.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial, reduce
from itertools import accumulate
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from kernels.allreduce import Reduction
from kernels.allreduce.schedules.block_tree import elements_sent
from miniapps.partition.cuts.axes import Cut, Dim, axes_of, merge, size_of
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import (
    SPAN,
    STAGE,
    Compute,
    Home,
    Plan,
    Receive,
    Reduce,
    Reshard,
    Send,
    Step,
    Window,
    step_operands,
    step_results,
)
from miniapps.partition.execution.partners import axes_between
from miniapps.partition.execution.regions import talks
from miniapps.partition.graphs.graph import ITEMSIZE, tensors_in
from miniapps.partition.planning.decide import placed
from miniapps.partition.planning.schedule import scheduled

if TYPE_CHECKING:
    from miniapps.partition.pricing.talk import Talks

Marks = Iterable[
    tuple[str | None, np.ndarray]
]  # an axis of the mesh, and the coordinate along it of each place


@dataclass(frozen=True)
class Traffic:
    """The messages of a step: `kind` (all-reduce, reduce-scatter, all-gather, all-to-all, permute, halo, send), its
    axes, the number of ranks in a group, the bytes of all ranks together, and how many they are."""

    kind: str
    axes: tuple[str, ...]
    ranks: int
    nbytes: int
    calls: int = 1


class Counter:
    """Counts messages for one plan on one mesh; None for a step without messages."""

    def __init__(self, plan: Plan, mesh: Mesh):
        self.plan, self.mesh = plan, mesh
        self.axes = {axis.name: axis for axis in plan.axes}
        self.passed = {id(step) for _, step in scheduled(plan, mesh) if isinstance(step, Send)}
        self.owned: Callable[[str, int | None], np.ndarray] = cache(self._owned)
        self.elements: Callable[[Cut], np.ndarray] = cache(self._elements)
        self.shared: Callable[[Cut, Cut], np.ndarray] = cache(self._shared)
        self.places, self.summed = cache(self._places), cache(self._summed)
        self.talks: Callable[[], Talks] = cache(self._talks)

    def step(self, step: Step) -> Traffic | None:
        """The messages of a step."""
        if isinstance(step, Reduce):
            return self.reduction(step)
        if isinstance(step, Send | Receive):
            return self.send(step) if id(step) in self.passed else None
        if isinstance(step, Reshard):
            found: Traffic | None = self.reshard(step)
        elif talks(step):
            found = self.region(step)
        else:
            found = self.spread(step) if step.kernel == SPAN else self.halo(step)
        return found if found and found.nbytes else None

    def reduction(self, step: Reduce) -> Traffic | None:
        """The messages of an all-reduce or reduce-scatter, over all groups of ranks that share the axes."""
        size = self.ranks(step.axes)
        if size == 1:
            return None
        before, after = (
            tuple(self.plan.values[name].cut for name in names) for names in (step.operands, step.results)
        )
        home = step.home if step.home and self.mesh.comes_home(step.axes, step.home.axis) else None
        scatters = before != after and all(map(partial(self.mesh.scatters, step.axes), before, after))
        scatters |= home is not None
        elements = self.summed(
            step.axes, before, after if scatters else None, step.dtype, self.at(step), home
        )
        kind = "reduce-scatter" if scatters else "all-reduce"
        return Traffic(kind, step.axes, size, elements * ITEMSIZE[step.dtype])

    def _summed(
        self,
        axes: tuple[str, ...],
        before: tuple[Cut, ...],
        after: tuple[Cut, ...] | None,
        dtype: str,
        at: frozenset[int] | None,
        home: Home | None,
    ) -> int:
        """The elements that a block tree over the product of the blocks of `axes` sends for partials of the cuts
        `before`; `after`: of the ranks' parts, in a reduce-scatter, of which all is at `home`."""
        carriers = {self.mesh.carrier(axis) for axis in axes}
        owners, size = self.owners(axes), self.ranks(axes)
        found = 0
        elements = sum(map(self.elements, after or before), self.constant(0))
        held = zip(
            self.grouped(elements if home is None else elements * self.at_home(home), carriers),
            self.grouped(self.executing(at), carriers),
            strict=True,
        )
        for parts, count in Tally(parts for parts, (executes, *_) in held if executes).items():
            bounds = None if after is None else tuple(accumulate(parts, initial=0))
            n = parts[0] if bounds is None else bounds[-1]
            short = Reduction("block-tree", (n,), np.dtype(dtype)).is_short(size)
            found += count * elements_sent(owners, size, n, short, bounds)
        return found

    def at_home(self, home: Home) -> np.ndarray:
        """1 for the ranks that own a block, 0 for others."""
        carrier, owner = self.mesh.carrier(home.axis), int(self.mesh.owners(self.axes[home.axis])[home.block])
        places = range(1 if carrier is None else self.mesh.extent(carrier))
        return self.along(carrier, [int(place == owner) for place in places])

    def owners(self, axes: tuple[str, ...]) -> list[int]:
        """The owner of each block of the product of `axes`, first axis major, as its place in its group."""
        every = np.meshgrid(*(self.mesh.owners(self.axes[axis]) for axis in axes), indexing="ij")
        at = {self.mesh.carrier(axis): own for axis, own in zip(axes, every, strict=True)}
        where = np.zeros_like(every[0])
        for name, size in self.mesh.axes:
            if name in at:
                where = where * size + at[name]
        return where.ravel().tolist()

    def grouped(self, array: np.ndarray, carriers: Iterable[str | None]) -> Iterator[tuple[int, ...]]:
        """The numbers of the ranks of each group along `carriers`."""
        names = [name for name, _ in self.mesh.axes]
        along = [names.index(carrier) for carrier in carriers if carrier is not None]
        whole = np.broadcast_to(array, [size for _, size in self.mesh.axes])
        last = np.moveaxis(whole, sorted(along), range(-len(along), 0))
        yield from map(tuple, last.reshape(-1, prod(last.shape[-len(along) :])).tolist())

    def send(self, step: Send | Receive) -> Traffic:
        """The messages of a value from stage to stage: what each rank of the first holds."""
        value = self.plan.values[step.operands[0]]
        partials = (self.blocks(axis) for axis in value.partial)
        held = reduce(np.multiply, partials, self.elements(value.cut) * self.executing(self.at(step)))
        return Traffic("send", (STAGE,), self.ranks((STAGE,)), self.total(held) * ITEMSIZE[value.dtype])

    def at(self, step: Step) -> frozenset[int] | None:
        """The stages that execute a step, of a message those that send it; None without stages."""
        if not self.plan.stages:
            return None
        return frozenset({step.source} if isinstance(step, Send) else self.plan.stages[step_results(step)[0]])

    def executing(self, at: frozenset[int] | None) -> np.ndarray:
        """1 for the ranks that have one of the stages, 0 for others."""
        if at is None:
            return self.constant(1)
        owners = set(self.mesh.owners(self.axes[STAGE])[sorted(at)].tolist())
        carrier = self.mesh.carrier(STAGE)
        places = range(1 if carrier is None else self.mesh.extent(carrier))
        return self.along(carrier, [int(place in owners) for place in places])

    def reshard(self, step: Reshard) -> Traffic:
        """The messages of a reshard: elements of the new cuts that each rank lacks."""
        values, total, moved = self.plan.values, 0, set()
        executing = self.executing(self.at(step))
        for old, new in ((values[o], values[r]) for o, r in zip(step.operands, step.results, strict=True)):
            lacking = self.elements(new.cut) - self.shared(old.cut, new.cut)
            total += self.total(lacking * executing) * ITEMSIZE[new.dtype]
            before, after = (
                {(dim, *one) for dim, factors in enumerate(cut) for one in placed(factors)}
                for cut in (old.cut, new.cut)
            )
            moved |= {axis for *_, axis in before ^ after}
        axes = tuple(name for name in self.axes if name in moved)
        return Traffic(step.kind, axes, self.ranks(axes), total)

    def spread(self, step: Compute) -> Traffic:
        """The messages of a range of a dim: the places that each rank lacks which reads it."""
        _, dim, begin, end = step.args
        values, total, places = self.plan.values, 0, np.arange(begin, end)
        executing = self.executing(self.at(step))
        for name, result in zip(tensors_in(step.args), step.results, strict=True):
            value, reads = values[name], executing
            if (seen_by := self.plan.seen_by.get(result)) is not None:
                later = np.arange(begin, size_of(seen_by))
                reads = reads * (self.marked(len(later), self.marks(seen_by, later)) > 0)
            others = self.elements((*value.cut[:dim], *value.cut[dim + 1 :]))
            lacks = len(places) - self.marked(len(places), self.marks(value.cut[dim], places))
            total += self.total(lacks * others * reads) * ITEMSIZE[value.dtype]
        axes = tuple(axis for _, axis in values[step_operands(step)[0]].cut[dim] if axis is not None)
        return Traffic("all-gather", axes, self.ranks(axes), total)

    def halo(self, step: Compute) -> Traffic | None:
        """The messages of a halo: places that windows read beyond a rank's own, corners included."""
        if not step.windows:
            return None
        total = 0
        executing = self.executing(self.at(step))
        for operand in dict.fromkeys(window.operand for window in step.windows):
            value = self.plan.values[operand]
            windows = {window.dim: window for window in step.windows if window.operand == operand}
            read, there = executing, executing
            for d, dim in enumerate(value.cut):
                if d in windows:
                    of = self.plan.values[windows[d].of].shape[windows[d].of_dim]
                    every, own = self.reading(windows[d], of, value.shape[d], dim)
                else:
                    every = own = self.places(dim)
                read, there = read * every, there * own
            total += self.total(read - there) * ITEMSIZE[value.dtype]
        axes = tuple(dict.fromkeys(window.axis for window in step.windows))
        return Traffic("halo", axes, self.ranks(axes), total)

    def region(self, step: Compute) -> Traffic:
        """The messages between the blocks of a manual region: each rank gets the tensors of all."""
        talk, axes = self.talks().of(step.node), axes_between(self.plan, step)
        values = (self.plan.values[name] for name in (*step_operands(step), *step.results))
        cut = {self.mesh.carrier(axis) for value in values for axis in axes_of(value.cut)} - {None}
        # How many ranks have a block.
        copies = self.total(self.executing(self.at(step))) // prod(map(self.mesh.extent, filter(None, cut)))
        sent = sum(said.nbytes(range(len(talk.lines))) for said in talk.messages) * copies
        size = self.ranks(axes)
        return Traffic("all-gather", axes, size, sent * (size - 1), len(talk.messages))

    def reading(self, window: Window, of: int, size: int, dim: Dim) -> tuple[np.ndarray, np.ndarray]:
        """The numbers of places that a window reads for the blocks of each rank, of `size` places cut as `dim`, and of
        those that it has; `of`: the size of the dim whose blocks it serves."""
        starts, carrier = self.axes[window.axis].at(of), self.mesh.carrier(window.axis)
        found: dict[int, set[int]] = {
            place: set() for place in range(1 if carrier is None else self.mesh.extent(carrier))
        }
        for block, owner in enumerate(self.mesh.owners(self.axes[window.axis]).tolist()):
            low, high = window.needs(starts[block], starts[block + 1])
            if window.wrap:
                found[owner].update(place % size for place in range(low, high))
            else:
                found[owner].update(range(max(low, 0), min(high, size)))
        counts = [len(read) for read in found.values()]
        places = np.array([place for read in found.values() for place in read], int)
        mark = carrier, np.repeat(np.arange(len(counts)), counts)
        return self.along(carrier, counts), self.marked(len(places), [mark, *self.marks(dim, places)])

    def ranks(self, axes: Iterable[str]) -> int:
        """The number of ranks that share the blocks of these axes."""
        carriers = {self.mesh.carrier(axis) for axis in axes} - {None}
        return prod(self.mesh.extent(carrier) for carrier in carriers if carrier)

    # ---- arrays over the mesh, of Python's integers

    def total(self, array: np.ndarray) -> int:
        """The sum over all ranks."""
        return int(array.sum()) * (self.mesh.size // array.size)

    def constant(self, number: int) -> np.ndarray:
        """The same number for all ranks."""
        return np.full([1] * len(self.mesh.axes), number, object)

    def along(self, carrier: str | None, numbers: Sequence[int]) -> np.ndarray:
        """A number for each place along an axis of the mesh; without it one number for all ranks."""
        return np.array(numbers, object).reshape([-1 if name == carrier else 1 for name, _ in self.mesh.axes])

    def blocks(self, axis: str) -> np.ndarray:
        """The number of blocks of an axis that a rank owns."""
        return self.owned(axis, None)

    def _talks(self) -> Talks:
        from miniapps.partition.pricing.talk import Talks

        return Talks(self.plan)

    def _owned(self, axis: str, size: int | None) -> np.ndarray:
        """The number of elements that a rank owns of a factor of `size` elements; None: of blocks."""
        carrier, own = self.mesh.carrier(axis), self.mesh.owners(self.axes[axis])
        counts = [0] * (1 if carrier is None else self.mesh.extent(carrier))
        lengths = np.ones_like(own) if size is None else np.diff(self.axes[axis].at(size))
        for owner, length in zip(own.tolist(), lengths.tolist(), strict=True):
            counts[owner] += length
        return self.along(carrier, counts)

    def _elements(self, cut: Cut) -> np.ndarray:
        """The number of elements of a value that a rank holds."""
        return reduce(np.multiply, map(self.places, cut), self.constant(1))

    def _places(self, dim: Dim) -> np.ndarray:
        """The number of places of a dim that a rank holds."""
        factors = (self.constant(n) if axis is None else self.owned(axis, n) for n, axis in dim)
        return reduce(np.multiply, factors, self.constant(1))

    def _shared(self, one: Cut, other: Cut) -> np.ndarray:
        """The number of elements that a rank holds in both of two cuts."""
        return reduce(np.multiply, map(self.common, one, other), self.constant(1))

    def common(self, one: Dim, other: Dim) -> np.ndarray:
        """The number of places of a dim that a rank holds in both of two cuts."""
        if (both := merge(one, other)) is not None:
            return self.places(both)
        every = np.arange(size_of(one))
        return self.marked(len(every), [*self.marks(one, every), *self.marks(other, every)])

    def marks(self, dim: Dim, places: np.ndarray) -> Marks:
        """The coordinates along each axis of the mesh at which `places` of a dim are held."""
        for n, axis in reversed(dim):
            if axis is not None:
                block = np.searchsorted(self.axes[axis].at(n), places % n, "right") - 1
                yield self.mesh.carrier(axis), self.mesh.owners(self.axes[axis])[block]
            places = places // n

    def marked(self, count: int, marks: Marks) -> np.ndarray:
        """How many of `count` places have the coordinates of a rank in all `marks`."""
        at: dict[str, np.ndarray] = {}
        kept = np.ones(count, bool)
        for carrier, coordinates in marks:
            if carrier is not None:
                kept &= at.setdefault(carrier, coordinates) == coordinates
        shape = [size if name in at else 1 for name, size in self.mesh.axes]
        where = np.ravel_multi_index(
            [at.get(name, np.zeros(count, int)) for name, _ in self.mesh.axes], shape
        )
        return np.bincount(where[kept], minlength=prod(shape)).reshape(shape).astype(object)
