"""Blocks and their owners."""

import numpy as np
import pytest

from miniapps.layout.blocks import Blocks, BlocksError
from miniapps.layout.owners import contiguous_owner


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7, 8, 12])
@pytest.mark.parametrize("shuffle", [0, 5])
def test_every_block_has_one_owner_and_loads_differ_by_at_most_one(size, shuffle):
    ranks = [Blocks(24, 32, 8, 8, size, rank, shuffle) for rank in range(size)]
    assert sorted(np.concatenate([b.own for b in ranks])) == list(range(12))
    loads = [len(b.own) for b in ranks]
    assert max(loads) - min(loads) <= 1
    assert all(b.own[b.local(int(g))] == g for b in ranks for g in b.own)
    assert all((b.local(g) is None) == (b.owner[g] != b.rank) for b in ranks for g in range(12))


def test_unshuffled_blocks_are_contiguous_and_shuffled_ones_are_not():
    assert Blocks(64, 64, 8, 8, 4, 1).own.tolist() == list(range(16, 32))
    shuffled = Blocks(64, 64, 8, 8, 4, 1, shuffle=9).own
    assert (np.diff(shuffled) > 1).any() and (np.diff(shuffled) > 0).all()


def test_the_first_ranks_have_the_blocks_that_are_left_over():
    """Whose they are enters the bits of every sum that promises less than `layout`."""
    assert contiguous_owner(7, 3).tolist() == [0, 0, 0, 1, 1, 2, 2]
    assert contiguous_owner(8, 3).tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_neighbours_wrap_around():
    blocks = Blocks(24, 32, 8, 8)
    assert blocks.neighbour(0, -1, -1) == 11
    assert blocks.neighbour(11, 1, 1) == 0
    assert blocks.origin(5) == (8, 8)


def test_a_grid_that_cannot_be_cut_is_refused_with_what_can():
    with pytest.raises(
        BlocksError, match=r"grid\.nx = 100 points cannot be cut into blocks of 16.* 20, 25, 50"
    ):
        Blocks(96, 100, 16, 16)


def test_more_ranks_than_blocks_are_refused():
    with pytest.raises(BlocksError, match=r"5 ranks for 4 blocks.* at most 4 ranks"):
        Blocks(16, 16, 8, 8, size=5)
