"""Which rank owns which block of a box, so that what ranks exchange is small."""

from itertools import product

import numpy as np

from miniapps.blocks import contiguous_owner
from miniapps.config import UsageError


def weak_grid(grid, size: int) -> None:
    """Set grid.nx, ny, nz so that each of `size` ranks has a cube of grid.points_per_rank points, in place.

    Raises UsageError where blocks do not fit into that cube.
    """
    edge = grid.points_per_rank
    if not edge:
        return
    for name, block in (("bx", grid.bx), ("by", grid.by), ("bz", grid.bz)):
        if edge % block:
            raise UsageError(
                f"--points-per-rank {edge}: blocks of {block} points (grid.{name}) do not fit into it; choose a "
                f"multiple of {block}"
            )
    pz, py, px = rank_grid(size, (size, size, size))
    grid.nz, grid.ny, grid.nx = pz * edge, py * edge, px * edge


def box_owner(blocks: tuple[int, int, int], size: int) -> np.ndarray | None:
    """(count,) int32: the rank of each block of a box of `blocks` (z, y, x) blocks, numbered with x fastest.

    Ranks form a grid of their own with the least surface, as far as every one gets a block; None where no such grid
    exists.
    """
    ranks = rank_grid(size, blocks)
    if ranks is None:
        return None
    axes = [contiguous_owner(n, p) for n, p in zip(blocks, ranks, strict=True)]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    return ((z * ranks[1] + y) * ranks[2] + x).reshape(-1).astype(np.int32)


def rank_grid(size: int, blocks: tuple[int, int, int]) -> tuple[int, int, int] | None:
    """(pz, py, px) with pz py px = size, none above `blocks`, whose parts have the least surface; None without any."""
    nz, ny, nx = blocks
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    found = [
        (pz, py, size // (pz * py))
        for pz, py in product(divisors, divisors)
        if size % (pz * py) == 0 and pz <= nz and py <= ny and size // (pz * py) <= nx
    ]

    def surface(p):
        z, y, x = nz / p[0], ny / p[1], nx / p[2]
        return z * y + y * x + z * x

    # Of equals the one with most ranks in z.
    return min(found, key=lambda p: (surface(p), [-n for n in p]), default=None)
