"""The shape of distributions: cells that count everything, divergence with its own null, modes."""

import math

import numpy as np
import pytest

from analysis.studies.sums.shape import (
    cells,
    divergence,
    grid_of,
    modes,
    normal_divergence,
    normal_shares,
    shape,
    v_s_and_grid,
)

SEEDS = range(20)


def normal(seed, n=500):
    return np.random.default_rng(seed).normal(3.0, 2.0, n)


def mixture(seed, places, n=600):
    rng = np.random.default_rng(seed)
    return rng.choice(np.asarray(places, float), n) + rng.normal(0, 1, n)


@pytest.mark.parametrize(
    "x", [normal(1), mixture(2, [0, 9]), np.array([1.0, 2.0]), np.repeat([0.0, 1.0, 5.0], 40)]
)
def test_a_histogram_counts_every_number(x):
    histogram = cells(np.sort(x))
    assert histogram.counts.sum() == len(x) and len(histogram.edges) == len(histogram.counts) + 1


def test_cells_are_as_wide_as_freedman_and_diaconis_say():
    x = np.sort(normal(3, 4000))
    quarters = np.quantile(x, [0.25, 0.75])
    width = np.diff(cells(x).edges)
    assert np.allclose(width, width[0])
    assert 0.97 < width[0] / (2 * (quarters[1] - quarters[0]) / 4000 ** (1 / 3)) <= 1


def test_numbers_on_a_grid_that_shows_have_a_cell_for_each_of_its_points():
    x = np.sort(np.repeat([0.0, 0.25, 1.0], [10, 20, 30]))
    histogram = cells(x, grid=0.25)
    assert histogram.discrete and histogram.counts.tolist() == [10, 20, 0, 0, 30]
    assert histogram.places.tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_grid_of_sums_is_found_from_their_differences(dtype):
    unit = np.spacing(dtype(1000.0))
    sums = np.array([1000.0, 1000.0 + 6 * float(unit), 1000.0 + 2 * float(unit)])
    assert grid_of(sums) == 2 * float(unit)


def test_v_s_and_its_grid_are_relative_to_the_reference():
    unit = np.spacing(4.0)
    v_s, grid = v_s_and_grid(np.array([4.0, 4.0 + unit, np.inf]), 4.0)
    assert v_s.tolist() == [0.0, -unit / 4] and grid == unit / 4


def test_the_divergence_is_that_of_the_formula():
    histogram = cells(np.sort(np.repeat([0.0, 1.0], [30, 10])), grid=1.0)
    q = 0.5 * math.erfc(-(0.5 - 0.25) / math.sqrt(2))  # below the edge at 0.5, for mean 0.25 and deviation 1
    expected = 0.75 * math.log(0.75 / q) + 0.25 * math.log(0.25 / (1 - q))
    assert divergence(histogram, 0.25, 1.0) == pytest.approx(expected, rel=1e-12)


def test_shares_of_the_normal_distribution_keep_their_digits_in_both_tails():
    q = normal_shares(np.array([-np.inf, -12.0, 0.0, 12.0, 13.0, np.inf]), 0.0, 1.0)
    assert q == pytest.approx(
        [math.erfc(12 / math.sqrt(2)) / 2, 0.5, 0.5, q[3], math.erfc(13 / math.sqrt(2)) / 2]
    )
    assert q[3] == pytest.approx((math.erfc(12 / math.sqrt(2)) - math.erfc(13 / math.sqrt(2))) / 2, rel=1e-9)


def test_normal_samples_are_seldom_above_their_own_bound_and_others_always():
    """5 % of normal samples should be; of 20, five or more have a probability of 0.3 %."""
    above = [form.kl > form.normal_95 for form in (shape(normal(seed)) for seed in SEEDS)]
    assert sum(above) < 5
    for seed in SEEDS:
        for x in (np.random.default_rng(seed).exponential(size=500), mixture(seed, [0, 6])):
            form = shape(x)
            assert form.kl > form.normal_95


def test_the_bound_of_normal_samples_grows_as_they_become_few():
    few, many = (normal_divergence(cells(np.sort(normal(5, n)))) for n in (50, 5000))
    assert few[0] > many[0] > 0 and few[1] > few[0] and many[1] > many[0]


@pytest.mark.parametrize("places", [[0], [0, 6], [0, 6, 12]])
def test_modes_of_a_known_mixture_are_counted(places):
    counts = [modes(cells(np.sort(mixture(seed, places)))) for seed in range(8)]
    assert np.median(counts) == len(places) and max(counts) <= len(places) + 1


def test_discrete_values_far_apart_are_modes_and_a_grid_alone_is_none():
    far = np.repeat([0.0, 50.0, 100.0], 50)
    assert shape(far, grid=1.0).modes == 3
    rounded = np.round(np.random.default_rng(1).normal(0, 3, 2000))
    assert shape(rounded, grid=1.0).modes == 1


def test_many_equal_modes_are_more_than_one():
    """How many more the test is too cautious to say."""
    x = np.concatenate([100.0 * k + np.random.default_rng(k).normal(0, 1, 40) for k in range(12)])
    assert 1 < shape(x).modes <= 12


def test_normal_samples_have_one_mode_as_often_as_the_level_says():
    """Of 60, 9 or more with two would have a probability of 0.3 %."""
    assert sum(shape(normal(seed)).modes > 1 for seed in range(60)) < 9


@pytest.mark.parametrize("x, count", [([], 0), ([2.0, 2.0], 2), ([np.nan, np.inf, 1.0], 1)])
def test_without_two_different_numbers_there_is_no_shape(x, count):
    form = shape(np.array(x))
    assert (form.count, form.modes) == (count, min(count, 1)) and math.isnan(form.kl)
