"""Assigns the blocks of a box to ranks so that ranks exchange little."""

from itertools import product

import numpy as np

from miniapps.errors import UsageError
from miniapps.layout.owners import contiguous_owner
from miniapps.solver.config import EDGE


def weak_grid(grid, size: int) -> None:
    """Set grid.nx, ny, nz so that each of `size` ranks has a cube of grid.points_per_rank points, in place.

    Raises UsageError if blocks do not fit into this cube.
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
    pz, py, px = rank_grid(size, (size, size, size), (edge, edge, edge)) or (size, 1, 1)  # always fits
    grid.nz, grid.ny, grid.nx = pz * edge, py * edge, px * edge
    if max(grid.nz, grid.ny, grid.nx) > EDGE:
        raise UsageError(
            f"--points-per-rank {edge}: a box of {grid.nx} x {grid.ny} x {grid.nz} points on {size} ranks, and at most "
            f"{EDGE} points lie along an edge; choose at most {EDGE // max(pz, py, px)}"
        )


def box_owner(box, size: int) -> np.ndarray | None:
    """(count,) int32: the rank of each block of a Box.

    Ranks form a grid with the least surface in which every rank gets a block; None if no such grid exists.
    """
    ranks = rank_grid(size, box.blocks, box.shape)
    if ranks is None:
        return None
    axes = [contiguous_owner(n, p) for n, p in zip(box.blocks, ranks, strict=True)]
    z, y, x = np.meshgrid(*axes, indexing="ij")
    return ((z * ranks[1] + y) * ranks[2] + x).reshape(-1).astype(np.int32)


def rank_grid(size: int, blocks, shape) -> tuple[int, int, int] | None:
    """(pz, py, px) with pz py px = size, each at most `blocks` (z, y, x), that cuts a box of `shape` points into parts
    with the least surface; None if there is none."""
    nz, ny, nx = blocks
    divisors = [d for d in range(1, size + 1) if size % d == 0]
    grids = [
        (pz, py, size // (pz * py))
        for pz, py in product(divisors, divisors)
        if size % (pz * py) == 0 and pz <= nz and py <= ny and size // (pz * py) <= nx
    ]

    def surface(p):
        z, y, x = (n / q for n, q in zip(shape, p, strict=True))
        return z * y + y * x + z * x

    # Among equals the grid with most ranks in z.
    return min(grids, key=lambda p: (surface(p), [-n for n in p]), default=None)
