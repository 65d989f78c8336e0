"""Medians, their intervals and the columns, against definitions and scipy."""

import numpy as np
import pytest
from scipy.stats import binom

from benchmarks.allreduce.statistics import against, figures, interval, interval_rank, quantile


@pytest.mark.parametrize("n", [6, 7, 8, 20, 99, 700, 3001])
def test_the_interval_covers_95_per_cent_and_the_next_narrower_one_does_not(n):
    k, coverage = interval_rank(n)
    # The median is enclosed unless fewer than k values lie on one side of it.
    assert coverage == pytest.approx(1 - 2 * binom.cdf(k - 1, n, 0.5), abs=1e-9)
    assert coverage >= 0.95 > 1 - 2 * binom.cdf(k, n, 0.5)


@pytest.mark.parametrize(("n", "covered"), [(1, 0), (2, 0.5), (5, 0.9375)])
def test_few_values_give_their_extremes_and_say_what_these_cover(n, covered):
    assert interval_rank(n) == (1, covered)
    assert interval(range(n)) == (0, n - 1)


def test_the_interval_encloses_the_median_of_a_skewed_distribution_as_often_as_it_says():
    rng = np.random.default_rng(3)
    samples = rng.exponential(size=(4000, 25))
    inside = [low <= np.log(2) <= high for low, high in map(interval, samples)]
    _, coverage = interval_rank(25)
    assert np.mean(inside) == pytest.approx(coverage, abs=4 * np.sqrt(coverage * (1 - coverage) / 4000))


def test_a_quantile_is_one_of_the_values():
    assert quantile(range(1, 101), 0.99) == 99
    assert quantile([3.0, 1.0, 2.0], 0.99) == 3.0
    assert quantile([3.0, 1.0, 2.0], 0.0) == 1.0


def visit(times, own, late=0, wrong=None):
    return {"times": times, "own": own, "late": late, "wrong": wrong}


def test_columns_follow_their_definitions():
    rounds = [visit([4.0, 6.0, 8.0], [3.0, 5.0], 1, 0), visit([5.0], [7.0, 1.0], 2, 3)]
    columns = figures(rounds, nbytes=1100, size=2)
    assert (columns["repetitions"], columns["late"], columns["wrong"]) == (4, 3, 3)
    assert columns["median"] == 5.5 and columns["interval"] == (4.0, 8.0) and columns["p99"] == 8.0
    # Rank 0: three repetitions of 3 s and one of 7; rank 1: three of 5 and one of 1.
    assert (columns["t_min"], columns["t_avg"], columns["t_max"]) == (4.0, 4.0, 4.0)
    assert columns["algbw"] == 200.0 and columns["busbw"] == 200.0


@pytest.mark.parametrize(("size", "factor"), [(1, 0), (2, 1), (4, 1.5), (8, 1.75)])
def test_the_bus_bandwidth_does_not_depend_on_the_number_of_ranks(size, factor):
    columns = figures([visit([2.0], [2.0] * size)], nbytes=64, size=size)
    assert (columns["algbw"], columns["busbw"]) == (32.0, 32.0 * factor)


def test_a_cell_whose_windows_all_began_late_has_no_times():
    columns = figures([visit([], [0.0, 0.0], late=9)], 8, 2)
    assert (columns["repetitions"], columns["late"], columns["median"]) == (0, 9, None)


def test_ratios_are_taken_round_by_round():
    one = [visit([2.0, 4.0, 9.0], []), visit([10.0], []), visit([], []), visit([3.0], [])]
    other = [visit([2.0], []), visit([5.0, 5.0], []), visit([1.0], []), visit([3.0], [])]
    assert against(one, other) == {"median": 2.0, "min": 1.0, "max": 2.0, "n": 3}
    assert against([visit([], [])], [visit([1.0], [])]) is None
