"""Boxes of blocks for ranks, and whole vectors gathered from them."""

import numpy as np
import pytest

from miniapps.errors import UsageError
from miniapps.layout.rows import Rows
from miniapps.linear.box import Box
from miniapps.solver.config import Grid
from miniapps.solver.decomposition import box_owner, rank_grid, weak_grid
from miniapps.solver.output import assemble


@pytest.mark.parametrize("size", [1, 2, 3, 4, 6, 7, 8, 12, 64])
@pytest.mark.parametrize("blocks", [(4, 4, 4), (2, 8, 4), (1, 1, 64), (8, 8, 8)])
def test_every_rank_owns_a_box_of_blocks(size, blocks):
    owner = box_owner(Box(*(2 * n for n in blocks), (2, 2, 2)), size)
    if owner is None:
        assert rank_grid(size, blocks, blocks) is None
        return
    grid = owner.reshape(blocks)
    assert set(owner.tolist()) == set(range(size))
    for rank in range(size):
        z, y, x = np.nonzero(grid == rank)
        extent = [int(a.max() - a.min()) + 1 for a in (z, y, x)]
        assert np.prod(extent) == len(z)


def test_seven_ranks_find_no_grid_in_four_blocks_per_axis():
    assert box_owner(Box(8, 8, 8, (2, 2, 2)), 7) is None


def test_rank_grids_have_the_least_surface():
    assert rank_grid(8, (8, 8, 8), (64, 64, 64)) == (2, 2, 2)
    assert rank_grid(8, (8, 8, 8), (8, 64, 512)) == (1, 1, 8)
    assert rank_grid(4, (8, 8, 8), (64, 64, 64)) == (2, 2, 1)
    assert rank_grid(4, (1, 8, 8), (64, 64, 64)) == (1, 2, 2)
    assert rank_grid(5, (8, 8, 8), (64, 64, 64)) == (5, 1, 1)


@pytest.mark.parametrize("size", [1, 2, 4, 6, 8])
def test_weak_scaling_gives_every_rank_the_same_cube(size):
    grid = Grid(points_per_rank=16, bx=8, by=4, bz=16)
    weak_grid(grid, size)
    assert grid.nx * grid.ny * grid.nz == size * 16**3
    owner = box_owner(Box(grid.nz, grid.ny, grid.nx, (16, 4, 8)), size)
    assert np.bincount(owner).tolist() == [1 * 4 * 2] * size


def test_weak_scaling_refuses_blocks_that_do_not_fit():
    with pytest.raises(UsageError, match=r"--points-per-rank 10: blocks of 4 points \(grid.by\)"):
        weak_grid(Grid(points_per_rank=10, bx=5, by=4, bz=5), 2)


def test_a_grid_without_weak_scaling_stays_as_it_is():
    grid = Grid(nx=5, ny=6, nz=7)
    weak_grid(grid, 8)
    assert (grid.nx, grid.ny, grid.nz) == (5, 6, 7)


@pytest.mark.parametrize("owner", [[0, 1, 0, 2, 2, 1], [2, 2, 2, 0, 0, 0]])
def test_gathered_vectors_stand_in_the_order_of_the_rows(owner):
    """Against a hand-made gather of three ranks."""
    starts = np.array([0, 3, 4, 9, 10, 12, 20])
    whole = np.arange(20.0)
    parts = [
        np.concatenate(
            [*(whole[starts[b] : starts[b + 1]] for b in range(6) if owner[b] == rank), np.empty(0)]
        )
        for rank in range(3)
    ]
    rows = Rows(starts, 3, 0, owner=np.array(owner, np.int32))
    assert assemble(rows, np.concatenate(parts)).tolist() == whole.tolist()
