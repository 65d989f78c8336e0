"""Rows in logical blocks: their owners and places, for even, uneven and one-row blocks."""

import numpy as np
import pytest

from miniapps.layout.blocks import BlocksError
from miniapps.layout.rows import Rows

UNEVEN = np.array([0, 3, 4, 10, 11, 12, 20])


def of_all_ranks(starts, size, shuffle=0, owner=None):
    return [Rows(starts, size, rank, shuffle, owner) for rank in range(size)]


@pytest.mark.parametrize("shuffle", [0, 1, 7])
@pytest.mark.parametrize("size", [1, 2, 4, 6])
def test_every_row_belongs_to_one_rank_that_finds_it(size, shuffle):
    ranks = of_all_ranks(UNEVEN, size, shuffle)
    assert sorted(np.concatenate([rows.global_rows() for rows in ranks])) == list(range(20))
    everything = np.arange(20)
    for rows in ranks:
        mine = rows.global_rows()
        assert rows.m == len(mine) > 0 and rows.n == 20 and rows.count == 6
        assert (np.diff(mine) > 0).all()
        assert np.array_equal(rows.local_of(mine), np.arange(rows.m))
        assert np.array_equal(rows.owner_of(everything) == rows.rank, np.isin(everything, mine))
        assert np.array_equal(rows.local_of(everything) >= 0, np.isin(everything, mine))


def test_blocks_lie_one_after_the_other_in_ascending_order():
    rows = Rows(UNEVEN, size=2, rank=1, owner=[1, 0, 1, 0, 1, 0])
    assert rows.own.tolist() == [0, 2, 4]
    assert rows.local_starts.tolist() == [0, 3, 9, 10]
    assert rows.ranges().tolist() == [[0, 3], [4, 10], [11, 12]]
    assert rows.global_rows().tolist() == [0, 1, 2, 4, 5, 6, 7, 8, 9, 11]
    assert rows.local_of([11, 3, 0]).tolist() == [9, -1, 0]


def test_a_rank_may_own_nothing_where_the_owners_are_given():
    rows = Rows(UNEVEN, size=3, rank=2, owner=[0, 0, 1, 1, 0, 0])
    assert rows.m == 0 and rows.own.size == 0 and rows.local_starts.tolist() == [0]
    assert rows.global_rows().size == 0 and rows.ranges().shape == (0, 2)
    assert rows.local_of([0, 19]).tolist() == [-1, -1] and rows.owner_of([0, 4, 19]).tolist() == [0, 1, 0]
    assert rows.owner_of([]).size == 0


def test_shuffling_changes_the_owners_and_nothing_else():
    plain, shuffled = Rows(UNEVEN, 3, 0), Rows(UNEVEN, 3, 0, shuffle=5)
    assert plain.owner.tolist() == [0, 0, 1, 1, 2, 2]
    assert sorted(shuffled.owner) == sorted(plain.owner) and shuffled.owner.tolist() != plain.owner.tolist()
    assert np.array_equal(shuffled.owner, Rows(UNEVEN, 3, 2, shuffle=5).owner)


def test_more_ranks_than_blocks_are_told_what_to_change():
    with pytest.raises(BlocksError, match=r"7 ranks for 6 blocks.*at most 6 ranks, or choose smaller blocks"):
        Rows(UNEVEN, size=7)


@pytest.mark.parametrize("starts", [[], [0], [1, 2], [0, 3, 3], [0, 5, 4], [[0, 1]]])
def test_starts_that_cut_nothing_are_refused(starts):
    with pytest.raises(BlocksError, match="rows cannot be cut at"):
        Rows(np.array(starts, np.int64))


@pytest.mark.parametrize("owner", [[0, 1], [0, 1, 2], [0, -1, 1], [[0, 0, 1]]])
def test_owners_that_do_not_fit_are_refused(owner):
    with pytest.raises(BlocksError, match=r"of 3 blocks of rows: give one rank of 0 ... 1 for each"):
        Rows(np.array([0, 1, 2, 3]), size=2, owner=owner)
