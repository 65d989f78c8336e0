"""A box of points in logical blocks, numbered block by block; its coarser boxes.

Everything here follows from the box alone, not from ranks or owners, so every rank gets the same result.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from miniapps.layout.blocks import BlocksError, require_few

AXES = ("z", "y", "x")
MOST = 2**53  # points; entries.py adds a mark to the numbers of points outside
NARROWEST = 2  # narrower blocks of a coarse box are merged in pairs


@dataclass(frozen=True, eq=False)
class Box:
    """`nz x ny x nx` points inside a box, Dirichlet zero around them, cut into logical blocks.

    `block`: along each axis the edge of a block (the last block may be smaller), or the cuts themselves: an
    increasing array that begins with 0 and ends with the number of points. Blocks are numbered in z, y, x order (x
    fastest), and points block by block, inside a block in z, y, x order. So block b has the rows `starts[b]` to
    `starts[b + 1] - 1`. The distance of points, `h`, is the same along all axes; the longest edge has length 1.

    Raises BlocksError for an axis without points, for blocks that do not fit, and for too many of either.
    """

    nz: int
    ny: int
    nx: int
    block: tuple

    def __post_init__(self):
        if len(self.block) != 3:
            raise BlocksError(f"a block has three edges (z, y, x), not {len(self.block)}: {self.block}")
        for axis, n, block in zip(AXES, self.shape, self.block, strict=True):
            if n < 1:
                raise BlocksError(f"a box needs at least one point along {axis}, not {n}")
            if np.ndim(block) == 0 and block < 1:
                raise BlocksError(f"a block needs at least one point along {axis}, not {block}")
            if np.ndim(block) and (block[0] != 0 or block[-1] != n or np.any(np.diff(block) < 1)):
                raise BlocksError(f"cuts along {axis} must increase from 0 to {n}, the number of points")
        if self.n > MOST:
            raise BlocksError(
                f"a box of {self.n} points: rows are numbered up to {MOST}; choose a smaller one"
            )
        edges = zip(self.shape, self.block, strict=True)
        require_few(
            math.prod(len(block) - 1 if np.ndim(block) else -(-n // block) for n, block in edges),
            "choose larger blocks (grid.bx, by, bz) or a smaller box",
        )

    @property
    def shape(self) -> tuple[int, int, int]:
        """(nz, ny, nx)."""
        return self.nz, self.ny, self.nx

    @property
    def n(self) -> int:
        """Number of points."""
        return self.nz * self.ny * self.nx

    @property
    def h(self) -> float:
        """Distance of neighbouring points."""
        return 1.0 / (max(self.shape) + 1)

    @cached_property
    def cuts(self) -> tuple[np.ndarray, ...]:
        """Per axis the first point of each block, then the number of points; int64."""
        return tuple(
            np.asarray(block, np.int64)
            if np.ndim(block)
            else np.append(np.arange(0, n, block, dtype=np.int64), n)
            for n, block in zip(self.shape, self.block, strict=True)
        )

    @property
    def blocks(self) -> tuple[int, ...]:
        """Number of blocks along each axis."""
        return tuple(len(cuts) - 1 for cuts in self.cuts)

    @property
    def count(self) -> int:
        """Number of blocks."""
        return int(np.prod(self.blocks))

    @cached_property
    def starts(self) -> np.ndarray:
        """(count + 1,) int64: the first row of each block, then the number of points."""
        z, y, x = (np.diff(cuts) for cuts in self.cuts)
        return np.concatenate([[0], np.cumsum((z[:, None, None] * y[:, None] * x).reshape(-1))])

    @cached_property
    def homes(self) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
        """Per axis, for each coordinate: the begin of its block, and the extent of this block; int64."""
        extents = [np.diff(cuts) for cuts in self.cuts]
        return tuple(
            (np.repeat(cuts[:-1], extent), np.repeat(extent, extent))
            for cuts, extent in zip(self.cuts, extents, strict=True)
        )

    def points(self, blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z, y, x), int64, of all rows of `blocks`, in the given order of blocks."""
        blocks = np.asarray(blocks, np.int64)
        where = np.unravel_index(blocks, self.blocks)
        first = [cuts[at] for cuts, at in zip(self.cuts, where, strict=True)]
        extent = [np.diff(cuts)[at] for cuts, at in zip(self.cuts, where, strict=True)]
        sizes = extent[0] * extent[1] * extent[2]
        of = np.repeat(np.arange(len(blocks)), sizes)
        rest = np.arange(len(of)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        rest, x = np.divmod(rest, extent[2][of])
        z, y = np.divmod(rest, extent[1][of])
        return first[0][of] + z, first[1][of] + y, first[2][of] + x

    def number(self, z, y, x) -> np.ndarray:
        """The rows of points, int64."""
        (z0, ez), (y0, ey), (x0, ex) = (
            (first[at], extent[at]) for (first, extent), at in zip(self.homes, (z, y, x), strict=True)
        )
        before = z0 * (self.ny * self.nx) + ez * (y0 * self.nx + ey * x0)
        return before + ((z - z0) * ey + (y - y0)) * ex + (x - x0)

    def coordinates(self, blocks) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(z, y, x), float64, in units of the longest edge, of all rows of `blocks`."""
        z, y, x = self.points(blocks)
        return (z + 1) * self.h, (y + 1) * self.h, (x + 1) * self.h


def coarsen(box: Box, axes=(True, True, True)) -> Box:
    """The box of every second point (1, 3, 5, ...) along the chosen axes.

    A coarse point is in the block of the fine point at the same place, so owners need not send anything. Blocks
    narrower than two points are merged in pairs along the axis; then fewer ranks own blocks.
    """
    shape, blocks = [], []
    for n, cuts, chosen in zip(box.shape, box.cuts, axes, strict=True):
        shape.append(n // 2 if chosen else n)
        blocks.append(_halved(cuts) if chosen else cuts)
    nz, ny, nx = shape
    return Box(nz, ny, nx, tuple(blocks))


def coarsened(fine: Box, coarse: Box) -> tuple[bool, ...]:
    """For each axis whether `coarse` has every second point of `fine`."""
    return tuple(a != b for a, b in zip(fine.shape, coarse.shape, strict=True))


def parents(fine: Box, coarse: Box) -> np.ndarray:
    """(coarse.count,) int64: the block of `fine` that contains the first point of each coarse block."""
    first = []
    for cuts, home, chosen in zip(coarse.cuts, fine.cuts, coarsened(fine, coarse), strict=True):
        at = 2 * cuts[:-1] + 1 if chosen else cuts[:-1]
        first.append(np.searchsorted(home, at, side="right") - 1)
    z, y, x = np.meshgrid(*first, indexing="ij")
    return np.ravel_multi_index((z, y, x), fine.blocks).reshape(-1)


def _halved(cuts: np.ndarray) -> np.ndarray:
    """Cuts of the coarse axis: coarse point I is fine point 2I + 1."""
    halved = cuts // 2
    narrow = min(
        (b - a for a, b in pairwise(halved[:-1].tolist())), default=NARROWEST
    )  # the last block may be small
    if narrow < NARROWEST:
        halved = np.append(halved[:-1:2], halved[-1])
    return np.unique(halved)  # drops empty blocks
