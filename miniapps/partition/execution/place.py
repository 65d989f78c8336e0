"""The part of every value that a rank of a mesh holds, and the blocks in it. No MPI, no torch.

Of a cut dim a rank holds the elements of its own blocks, ascending (`miniapps.partition.cuts.steps`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from kernels.allreduce.schedules.block_tree import roots
from miniapps.partition.cuts.axes import Axis, Cut, Dim
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import Home, Window

Run = tuple[int, int]  # own blocks [begin, end), by position among the own blocks of an axis


@dataclass(frozen=True)
class Part:
    """A part of an array: `ranges` (dim, begin, length) of the array viewed with the shape `factors` (None: its own
    shape), as an array of shape `shape`."""

    factors: tuple[int, ...] | None
    ranges: tuple[tuple[int, int, int], ...]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Halo:
    """The places of a dim that a window reads for each of the rank's `runs` of blocks, one run after the other
    ("blocks": every block separately, "runs": neighbouring blocks together). `size`: of the dim with the blocks."""

    window: Window
    size: int
    runs: str


@dataclass(frozen=True)
class Span:
    """The places [begin, end) of a dim: on every rank, or on those with a place from `begin` on of the dim
    `seen_by`."""

    begin: int
    end: int
    seen_by: Dim | None = None


@dataclass(frozen=True)
class Next:
    """The places of a dim that other ranks hold: of those that own other blocks of `axes`, `first` to `last` - 1 after
    this one."""

    dim: Dim
    axes: tuple[str, ...]
    first: int
    last: int


Wanted = tuple["Dim | Halo | Span | Home | Next", ...]  # wanted places of each dim of a value


@dataclass(frozen=True)
class Rows:
    """The partials of a rank: `numbers` of its blocks in a product of `count` blocks, ascending, and the largest owned
    `subtrees` of the tree over all blocks, each as positions [begin, end) in `numbers`."""

    axes: tuple[str, ...]
    count: int
    numbers: tuple[int, ...]
    subtrees: tuple[tuple[int, int], ...]


class Place:
    """The part of every value that `rank` holds. `padded`: zeros behind its blocks, so that all ranks hold equally many
    elements of every axis."""

    def __init__(self, axes: Iterable[Axis], mesh: Mesh, rank: int, padded: bool = False):
        self.mesh, self.rank, self.padded = mesh, rank, padded
        self.axes = {axis.name: axis for axis in axes}
        self.own = {axis.name: mesh.own(axis, rank) for axis in self.axes.values()}
        self._sizes: dict[tuple[int, str], tuple[int, ...]] = {}
        self._held: dict[tuple[int, str], int] = {}
        self._shapes: dict[Cut, tuple[int, ...]] = {}
        self._indices: dict[object, np.ndarray] = {}
        self._rows: dict[tuple[str, ...], Rows] = {}

    def lengths(self, n: int, axis: str) -> tuple[int, ...]:
        """The number of elements of each own block in a factor of n elements."""
        known = self._sizes.get((n, axis))
        if known is None:
            starts = self.axes[axis].at(n)
            known = tuple(starts[b + 1] - starts[b] for b in self.own[axis])
            self._sizes[n, axis] = known
        return known

    def held(self, n: int, axis: str) -> int:
        """The number of held elements of a factor of n, padding included."""
        known = self._held.get((n, axis))
        if known is None:
            known = sum(self.lengths(n, axis))
            if self.padded:
                of_blocks = np.diff(self.axes[axis].at(n))
                known = int(np.bincount(self.mesh.owners(self.axes[axis]), of_blocks).max())
            self._held[n, axis] = known
        return known

    def shape(self, cut: Cut) -> tuple[int, ...]:
        """The local shape of a value of this cut."""
        known = self._shapes.get(cut)
        if known is None:
            known = tuple(prod(n if axis is None else self.held(n, axis) for n, axis in dim) for dim in cut)
            self._shapes[cut] = known
        return known

    def runs(self, axis: str, by: str) -> list[Run]:
        """The own blocks of an axis one by one ("blocks"), as runs of neighbours ("runs"), or all together ("all")."""
        own = self.own[axis]
        if by == "all" or not own:
            return [(0, len(own))] if own else []
        ends = [k + 1 for k in range(len(own)) if by == "blocks" or own[k] + 1 not in own[k + 1 : k + 2]]
        return list(zip([0, *ends[:-1]], ends, strict=True))

    def span(self, n: int, axis: str, run: Run) -> tuple[int, int]:
        """(begin, length) of a run of own blocks in the local elements of a factor of n."""
        lengths = self.lengths(n, axis)
        return sum(lengths[: run[0]]), sum(lengths[run[0] : run[1]])

    def part(
        self, cut: Cut, chosen: Mapping[str, Run], halos: Mapping[int, tuple[int, int, int]] | None = None
    ) -> Part | None:
        """The part of a local array that belongs to the `chosen` own blocks; None for the whole array.

        `halos`: {dim with a halo: (length, begin of the chosen part, its length)}.
        """
        view: list[int] = []
        ranges: list[tuple[int, int, int]] = []
        shape: list[int] = []
        for d, dim in enumerate(cut):
            if halos and d in halos:
                whole, begin, length = halos[d]
                if length != whole:
                    ranges.append((len(view), begin, length))
                view.append(whole)
                shape.append(length)
                continue
            factors = [(n if axis is None else self.held(n, axis), n, axis) for n, axis in dim]
            at = [k for k, (_, _, axis) in enumerate(factors) if axis in chosen]
            if not at or (len(at) == 1 and prod(m for m, _, _ in factors[: at[0]]) == 1):
                size = prod(m for m, _, _ in factors)
                length = size
                if at:
                    mine, n, axis = factors[at[0]]
                    begin, count = self.span(n, str(axis), chosen[str(axis)])
                    minor = size // mine
                    length = count * minor
                    if length != size:
                        ranges.append((len(view), begin * minor, length))
                view.append(size)
                shape.append(length)
                continue
            length = 1
            for mine, n, axis in factors:
                begin, count = (0, mine) if axis not in chosen else self.span(n, str(axis), chosen[str(axis)])
                if count != mine:
                    ranges.append((len(view), begin, count))
                view.append(mine)
                length *= count
            shape.append(length)
        if not ranges:
            return None
        return Part(tuple(view) if len(view) != len(cut) else None, tuple(ranges), tuple(shape))

    def padding(self, cut: Cut, axes: Iterable[str]) -> tuple[Part, ...]:
        """The parts of a local array that pad the blocks of `axes`."""
        found = []
        for d, dim in enumerate(cut):
            for k, (n, axis) in enumerate(dim):
                if axis is None or axis not in axes:
                    continue
                begin, end = sum(self.lengths(n, axis)), self.held(n, axis)
                if begin < end:
                    sizes = [m if name is None else self.held(m, name) for m, name in dim]
                    before = tuple(self.shape((other,))[0] for other in cut[:d])
                    after = tuple(self.shape((other,))[0] for other in cut[d + 1 :])
                    found.append(Part((*before, *sizes, *after), ((d + k, begin, end - begin),), ()))
        return tuple(found)

    def groups(self, halo: Halo) -> list[tuple[int, int]]:
        """The places [low, high) that windows read for each run of blocks; some may be outside the operand."""
        window, axis = halo.window, halo.window.axis
        starts = self.axes[axis].at(halo.size)
        own = self.own[axis]
        return [
            window.needs(starts[own[begin]], starts[own[end - 1] + 1])
            for begin, end in self.runs(axis, halo.runs)
        ]

    def indices(self, wanted: Dim | Halo | Span | Home | Next, n: int) -> np.ndarray:
        """The global places of a dim of n, ascending in a cut; -1 for zeros outside it and for padding."""
        key = (wanted, n) if isinstance(wanted, Halo | Home) else wanted
        known = self._indices.get(key)
        if known is None:
            known = self._found(wanted, n)
            self._indices[key] = known
        return known

    def places(self, dim: Dim, chosen: Mapping[str, Run]) -> np.ndarray:
        """The global places of a dim in the `chosen` own blocks, ascending; -1 for padding."""
        found = np.zeros(1, np.int64)
        for size, axis in dim:
            if axis is None:
                mine = np.arange(size)
            else:
                starts = self.axes[axis].at(size)
                first, last = chosen.get(axis, (0, len(self.own[axis])))
                own = [np.arange(starts[b], starts[b + 1]) for b in self.own[axis][first:last]]
                more = 0 if axis in chosen else self.held(size, axis) - sum(map(len, own))
                mine = np.concatenate([*own, np.full(more, -1)]).astype(np.int64)
            found = np.where((found[:, None] < 0) | (mine < 0), -1, found[:, None] * size + mine).reshape(-1)
        return found

    def _found(self, wanted: Dim | Halo | Span | Home | Next, n: int) -> np.ndarray:
        if isinstance(wanted, Next):
            group = self.mesh.group(wanted.axes, self.rank)
            at = group.index(self.rank)
            others = [group[(at + k) % len(group)] for k in range(wanted.first, wanted.last)]
            places = [Place(self.axes.values(), self.mesh, other).places(wanted.dim, {}) for other in others]
            return np.concatenate(places)
        if isinstance(wanted, Span):
            last = wanted.begin if wanted.seen_by is None else self.places(wanted.seen_by, {}).max(initial=-1)
            return np.arange(wanted.begin, wanted.end if wanted.begin <= last else wanted.begin)
        if isinstance(wanted, Home):
            return np.arange(n if wanted.block in self.own[wanted.axis] else 0)
        if isinstance(wanted, Halo):
            places = [np.arange(low, high) for low, high in self.groups(wanted)]
            found = np.concatenate(places) if places else np.empty(0, np.int64)
            return found % n if wanted.window.wrap else np.where((found >= 0) & (found < n), found, -1)
        return self.places(wanted, {})

    def rows(self, axes: tuple[str, ...]) -> Rows:
        """The partials of this rank over a product of axes, first axis major."""
        known = self._rows.get(axes)
        if known is None:
            owners = np.zeros((), np.int64)
            mine: list[int] = [0]
            for name in axes:
                axis = self.axes[name]
                places = self.mesh.owners(axis)
                owners = owners[..., None] * (int(places.max()) + 1) + places
                mine = [number * axis.blocks + block for number in mine for block in self.own[name]]
            flat = owners.reshape(-1).tolist()
            position = {number: k for k, number in enumerate(mine)}
            trees = roots((0, len(flat)), flat) if mine else []
            subtrees = tuple((position[a], position[a] + b - a) for a, b in trees if a in position)
            known = self._rows[axes] = Rows(axes, len(flat), tuple(mine), subtrees)
        return known
