"""The choice of blocks to compute twice, and of the ranks that compute them again."""

from collections import Counter

import numpy as np
import pytest

from miniapps.runner.duplicates import draw


def test_a_fraction_of_the_blocks_is_drawn_and_each_as_often():
    owner = np.arange(1000) % 5
    counted = Counter(each.block for step in range(200) for each in draw(1, step, owner, 5, 0.1))
    drawn = sum(counted.values())
    assert abs(drawn - 20_000) < 5 * np.sqrt(20_000 * 0.9)
    assert len(counted) == 1000 and max(counted.values()) < 50


@pytest.mark.parametrize("size", [2, 3, 5])
def test_others_than_the_owner_compute_a_block_and_all_do(size):
    owner = np.arange(300) % size
    drawn = draw(1, 1, owner, size, 1.0)
    assert [each.block for each in drawn] == list(range(300))
    assert all(each.owner == owner[each.block] != each.other for each in drawn)
    assert all((each.third == each.owner) == (size == 2) and each.third != each.other for each in drawn)
    for role in ("other", "third"):
        assert {getattr(each, role) for each in drawn} == set(range(size))


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("fraction", [0.02, 0.2, 0.7, 1.0])
def test_every_rank_computes_as_many_again_as_any_other(size, fraction):
    owner = np.repeat(np.arange(size), 16)
    for step in range(50):
        drawn = draw(1, step, owner, size, fraction)
        own = np.bincount([each.owner for each in drawn], minlength=size)
        again = np.bincount([each.other for each in drawn], minlength=size)
        assert own.max() - own.min() <= 1
        assert again.max() - again.min() <= 2 and again.max() <= np.ceil(16 * fraction) + 1
        assert abs(len(drawn) - len(owner) * fraction) < 1


def test_every_step_and_seed_draws_others():
    owner = np.zeros(1000, int)

    def blocks(seed, step):
        return [each.block for each in draw(seed, step, owner, 2, 0.1)]

    assert blocks(1, 1) == blocks(1, 1) and blocks(1, 1) not in (blocks(1, 2), blocks(2, 1))
