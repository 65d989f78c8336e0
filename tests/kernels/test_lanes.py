"""Lanes of trees."""

import numpy as np
import pytest

from kernels.sums.discover import discover
from kernels.sums.lanes import lanes


def chain(indices):
    tree, *others = indices
    for index in others:
        tree = (tree, index)
    return tree


@pytest.mark.parametrize("count", [2, 4, 8])
def test_running_sums_of_every_nth_element_are_so_many_lanes(count):
    running = [chain(range(lane, 8 * count, count)) for lane in range(count)]
    assert lanes(chain(running)) == lanes(tuple(running)) == count


def test_left_to_right_is_one_lane():
    assert lanes(chain(range(16))) == 1


def test_pairs_and_irregular_sums_have_none():
    assert lanes((((0, 1), (2, 3)), ((4, 5), (6, 7)))) is None
    assert lanes((chain((0, 1, 3, 4)), chain((2, 5, 6)))) is None
    assert lanes(0) is None


def test_lanes_of_a_sum_that_is_written_down():
    def four(x):
        return float(
            ((x[0::4].cumsum()[-1] + x[1::4].cumsum()[-1]) + x[2::4].cumsum()[-1]) + x[3::4].cumsum()[-1]
        )

    assert lanes(discover(four, 32, np.float64)) == 4
