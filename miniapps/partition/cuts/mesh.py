"""Meshes of ranks: they assign the blocks of each axis to ranks, and change no bit under `layout`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np

from miniapps.errors import UsageError
from miniapps.layout.owners import contiguous_owner, in_turn_owner, shuffled, zigzag_owner
from miniapps.partition.cuts.axes import Axis, Cut, axes_of
from miniapps.partition.cuts.steps import STAGE, Plan
from miniapps.untrusted.program import mesh_text

GPIPE, ONE_EACH, CIRCULAR = SCHEDULES = ("gpipe", "1f1b", "circular")
CONTIGUOUS, ZIGZAG = "contiguous", "zigzag"  # owners of the blocks of an axis
LARGEST = 10**7  # limit of sizes of meshes and models, and of numbers of blocks


@dataclass(frozen=True)
class Mesh:
    """Ranks in a grid, the last axis fastest; `carriers`: (logical axis, axis of the grid that carries it).

    Every rank has all blocks of a logical axis without a carrier, and neighbouring blocks of one with a carrier; of an
    axis in `zigzag` early and late ones (`zigzag_owner`). `shuffle`: seed that permutes owners. `schedule`: the order
    in which a rank computes its stages and micro-batches (`planning.schedule`), one of SCHEDULES; the ranks own stages
    in turn if it is `circular`.
    """

    axes: tuple[tuple[str, int], ...]
    carriers: tuple[tuple[str, str], ...] = ()
    shuffle: int = 0
    schedule: str = "1f1b"
    zigzag: tuple[str, ...] = ()

    def __str__(self) -> str:
        return mesh_text(dict(self.axes))

    @property
    def size(self) -> int:
        """Number of ranks."""
        return prod(size for _, size in self.axes)

    def extent(self, name: str) -> int:
        """The size of an axis of the grid."""
        return dict(self.axes)[name]

    def coordinates(self, rank: int) -> dict[str, int]:
        """The place of a rank along each axis of the grid."""
        found = {}
        for name, size in reversed(self.axes):
            rank, found[name] = divmod(rank, size)
        return found

    def carrier(self, axis: str) -> str | None:
        """The axis of the grid that carries a logical axis."""
        return dict(self.carriers).get(axis)

    def owners(self, axis: Axis) -> np.ndarray:
        """The place of each block along the carrier, (blocks,); zeros without a carrier."""
        carrier = self.carrier(axis.name)
        size = 1 if carrier is None else self.extent(carrier)
        if axis.name == STAGE and self.schedule == CIRCULAR:
            return _owners(axis.blocks, size, self.shuffle, in_turn_owner)
        owner = zigzag_owner if axis.name in self.zigzag else contiguous_owner
        return _owners(axis.blocks, size, self.shuffle, owner)

    def own(self, axis: Axis, rank: int) -> tuple[int, ...]:
        """The blocks of an axis that a rank owns, ascending."""
        carrier = self.carrier(axis.name)
        place = 0 if carrier is None else self.coordinates(rank)[carrier]
        return tuple(np.flatnonzero(self.owners(axis) == place).tolist())

    def group(self, axes: Iterable[str], rank: int) -> tuple[int, ...]:
        """The ranks, ascending, that together own all blocks of a product of axes: they differ from `rank` only along
        the carriers."""
        return _group(self.axes, frozenset(self.carrier(axis) for axis in axes), rank)

    def scatters(self, axes: Iterable[str], before: Cut, after: Cut) -> bool:
        """Whether a reduce-scatter suffices for a total over `axes` from the cut `before` to `after`: no two ranks of
        the group need the same element, since the additional axes of `after` use all carriers of the sum."""
        group, more = (
            {by for axis in some if (by := self.carrier(axis)) is not None and self.extent(by) > 1}
            for some in (axes, set(axes_of(after)) - set(axes_of(before)))
        )
        return group <= more

    def comes_home(self, axes: Iterable[str], axis: str) -> bool:
        """Whether a total over `axes` may go to the owners of one block of `axis` alone: the ranks that add it differ
        only along the carrier of this axis, so that one of them owns the block."""
        group = {by for one in axes if (by := self.carrier(one)) is not None and self.extent(by) > 1}
        return group == {self.carrier(axis)}


@cache
def _group(axes: tuple[tuple[str, int], ...], carriers: frozenset[str | None], rank: int) -> tuple[int, ...]:
    sizes = [size for _, size in axes]
    at = np.unravel_index(rank, sizes)
    along = [
        np.arange(size) if name in carriers else [int(place)]
        for (name, size), place in zip(axes, at, strict=True)
    ]
    return tuple(np.ravel_multi_index(np.meshgrid(*along, indexing="ij"), sizes).ravel().tolist())


@cache
def _owners(blocks: int, size: int, seed: int, owner: Callable[[int, int], np.ndarray]) -> np.ndarray:
    return shuffled(owner(blocks, size), seed)


def parse(
    text: str,
    carriers: Mapping[str, str],
    ranks: int,
    shuffle: int = 0,
    schedule: str = "1f1b",
    owners: str = "",
) -> Mesh:
    """Parses the mesh `data=2,model=2` for `ranks` ranks, and the `owners` of blocks, `tokens=zigzag`. Raises
    UsageError.

    `carriers`: {logical axis: axis of the mesh}; pairs whose axis the mesh lacks are ignored.
    """
    sizes = sizes_of(text)
    if not sizes:
        raise UsageError(f"--mesh {text!r}: no axis; write for example --mesh data={ranks}")
    count = prod(sizes.values())
    if count != ranks:
        raise UsageError(
            f"--mesh {text}: {count} ranks, but the run has {ranks}; start {count} ranks, or choose sizes whose "
            f"product is {ranks}"
        )
    for name, size in sizes.items():
        if size > 1 and name not in carriers.values():
            given = ", ".join(f"{axis}={by}" for axis, by in carriers.items()) or "nothing"
            raise UsageError(
                f"--mesh {text}: {name} carries no axis, so its {size} ranks would do the same work; choose {name}=1, "
                f"another --recipe, or a --map that names it (carried now: {given})"
            )
    require_stages(text, carriers)
    carried = tuple((axis, name) for axis, name in carriers.items() if name in sizes)
    return Mesh(tuple(sizes.items()), carried, shuffle, schedule, zigzag_of(owners, dict(carried)))


def zigzag_of(text: str, carriers: Mapping[str, str]) -> tuple[str, ...]:
    """The axes whose owners `--owners tokens=zigzag` names zigzag. Raises UsageError."""
    found = pairs(text, "--owners", "tokens=zigzag")
    for axis, how in found.items():
        if how not in (CONTIGUOUS, ZIGZAG):
            raise UsageError(f"--owners {text}: {how!r} is not {CONTIGUOUS} or {ZIGZAG}")
        if axis == STAGE:
            raise UsageError(
                f"--owners {text}: --schedule says which ranks own the stages; leave {STAGE} out"
            )
        if axis not in carriers:
            carried = ", ".join(name for name in carriers if name != STAGE) or "nothing"
            raise UsageError(f"--owners {text}: the mesh carries no axis {axis}; it carries {carried}")
    return tuple(axis for axis, how in found.items() if how == ZIGZAG)


def require_stages(text: str, carriers: Mapping[str, str]) -> None:
    """Raise UsageError if the axis of the mesh that carries the stages carries another axis, too."""
    others = [axis for axis, by in carriers.items() if by == carriers.get(STAGE) and axis != STAGE]
    if others:
        raise UsageError(
            f"--mesh {text}: {carriers[STAGE]} carries {STAGE} and {', '.join(others)}; ranks of one stage share "
            "the blocks of all other axes, so give the stages an axis of their own: --map batch=data,stage=stage"
        )


def sizes_of(text: str) -> dict[str, int]:
    """The axes of `--mesh data=2,model=2` and their sizes, in order; raises UsageError."""
    return {
        name: number(size, f"--mesh {text}: axis {name}")
        for name, size in pairs(text, "--mesh", "data=2,model=2").items()
    }


def number(text: str, where: str) -> int:
    """Parses a number from 1 to LARGEST. Raises UsageError whose message begins with `where`."""
    digits = text.isdecimal() and len(text) <= len(str(LARGEST))
    if not digits or not 1 <= int(text) <= LARGEST:
        raise UsageError(f"{where}: give a whole number from 1 to {LARGEST:,}")
    return int(text)


def pairs(text: str, option: str, example: str) -> dict[str, str]:
    """Parses the pairs of `a=1,b=2`, in order. Raises UsageError."""
    found: dict[str, str] = {}
    for part in text.split(",") if text else []:
        name, sign, value = (piece.strip() for piece in part.partition("="))
        if not (name and sign and value):
            raise UsageError(
                f"{option} {text}: {part!r} is not NAME=VALUE; write for example {option} {example}"
            )
        if name in found:
            raise UsageError(f"{option} {text}: {name} is given twice")
        found[name] = value
    return found


def carriers_of(text: str, mesh: str, axes: Iterable[Axis], recipe: Mapping[str, str]) -> dict[str, str]:
    """Parses `--map batch=data,heads=model`; without a text returns the recipe's carriers. Raises UsageError for
    unknown axes."""
    if not text:
        names = {axis.name for axis in axes}
        return {axis: carrier for axis, carrier in recipe.items() if axis in names}
    logical, grid = [axis.name for axis in axes], list(pairs(mesh, "--mesh", "data=2,model=2"))
    found = pairs(text, "--map", "batch=data,heads=model")
    for axis, carrier in found.items():
        if axis not in logical:
            raise UsageError(f"--map {text}: no axis {axis}; the problem has {', '.join(logical)}")
        if carrier not in grid:
            raise UsageError(f"--map {text}: no axis {carrier} in the mesh; it has {', '.join(grid)}")
    return found


def require_blocks(axes: Iterable[Axis], mesh: Mesh) -> None:
    """Raise UsageError if a carrier has more ranks than its axis has blocks."""
    for axis in axes:
        carrier = mesh.carrier(axis.name)
        size = 1 if carrier is None else mesh.extent(carrier)
        if size > axis.blocks:
            more = f", or more blocks (--blocks {axis.name}={size})" if size <= axis.extent else ""
            raise UsageError(
                f"--mesh {carrier}={size}: axis {axis.name} has {axis.blocks} blocks, so at most {axis.blocks} ranks "
                f"have work; choose {carrier} of at most {axis.blocks}{more}"
            )


def require_fits(plan: Plan, mesh: Mesh) -> None:
    """Raise UsageError for a mesh that does not fit a plan: more ranks than blocks, or one carrier for two axes of a
    value."""
    require_blocks(plan.axes, mesh)
    shared = [carrier for _, carrier in mesh.carriers]
    if len(shared) == len(set(shared)):
        return
    for name, value in plan.values.items():
        by_carrier: dict[str, str] = {}
        for axis_name in (*axes_of(value.cut), *value.partial):
            by = mesh.carrier(axis_name)
            if by is None:
                continue
            if by in by_carrier:
                raise UsageError(
                    f"--map: {by} carries {by_carrier[by]} and {axis_name}, but both cut the value {name}: "
                    "blocks off the diagonal would have no owner; give one of them another axis of the mesh"
                )
            by_carrier[by] = axis_name
