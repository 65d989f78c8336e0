"""The law of growth: its phase is found, its rate recovered, and too little says so."""

import itertools

import numpy as np
import pandas as pd
import pytest

from analysis.studies.growth.law import law, phase, pieces

K = np.arange(200.0)
LAG = np.minimum(-36 + 0.2 * np.maximum(K - 50, 0), -12)  # flat to 50, rises to 170, flat


def noisy(y, seed=0, size=0.1):
    return y + np.random.default_rng(seed).normal(0, size, len(y))


def table(columns, steps=None):
    """Samples as `law` takes them, from logarithms (samples, iterations)."""
    columns = np.atleast_2d(columns)
    return pd.DataFrame(np.exp(columns).T, index=np.arange(columns.shape[1]) if steps is None else steps)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("logs, first, last", [
    (LAG, 50, 170),
    (-36 + 0.1 * K, 0, 199),
    (np.minimum(-36 + 0.3 * K, -6), 0, 100),
    (-36 + 0.25 * np.minimum(K, 100) - 0.1 * np.maximum(K - 100, 0), 0, 100),  # falls as both solves converge
    (np.where(K < 4, -46 + 2.5 * K, -37 + 0.1 * K), 4, 199),  # the first iterations jump
])  # fmt: skip
def test_the_growth_phase_is_found(logs, first, last, seed):
    span = phase(K, noisy(logs, seed))
    assert abs(span[0] - first) <= 4 and abs(span[1] - last) <= 4


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("logs", [
    np.full(200, -36.0),
    -30 - 0.1 * K,
    -36 + 0.5 * np.log1p(K),  # a random walk of rounding errors
    -36 + 4.0 / 200 * K,  # rises by a factor of 55 in all
])  # fmt: skip
def test_what_does_not_grow_has_no_growth_phase(logs, seed):
    assert phase(K, noisy(logs, seed)) is None


def test_a_wiggle_makes_no_phase_and_breaks_none():
    wave = 1.5 * np.sin(K)
    assert phase(K, -36 + wave) is None
    first, last = phase(K, LAG + wave)
    assert abs(first - 50) <= 8 and abs(last - 170) <= 8


def test_long_histories_are_thinned_and_places_are_those_of_the_whole():
    x = np.arange(5000.0)
    first, last = phase(x, noisy(np.minimum(-36 + 0.02 * np.maximum(x - 1000, 0), -6)))
    assert abs(first - 1000) <= 50 and abs(last - 2500) <= 50


def test_fewer_points_than_a_piece_has_are_no_phase():
    assert phase(K[:3], np.array([-40.0, -20.0, 0.0])) is None
    assert phase(K[:4], np.array([-40.0, -30.0, -20.0, -10.0])) == (0, 3)


def test_pieces_cover_everything_once_and_are_as_few_as_the_data_needs():
    cuts = pieces(K, LAG)
    assert [cuts[0][0], cuts[-1][1]] == [0, 200] and all(a[1] == b[0] for a, b in itertools.pairwise(cuts))
    assert len(cuts) == 3
    assert len(pieces(K, noisy(-36 + 0.1 * K))) == 1


def test_an_exact_law_is_recovered():
    rates = 0.2 + 0.01 * np.arange(7)
    samples = np.minimum(-36 + rates[:, None] * K, -4)
    fit = law(table(samples), tolerance=1e-8)
    assert fit["rate"] == pytest.approx(0.23, rel=0.01) and fit["rates"] == 7 and fit["nothing"] == ""
    assert fit["rate_low"] == pytest.approx(0.2, rel=0.01) and fit["rate_high"] == pytest.approx(
        0.26, rel=0.02
    )
    assert fit["start"] == pytest.approx(np.exp(-36), rel=0.5)
    assert fit["settled"] == pytest.approx(np.exp(-4)) and fit["largest"] == pytest.approx(np.exp(-4))
    at = (np.log(1e-8) + 36) / rates
    assert fit["predicted"] == pytest.approx(np.median(at), rel=0.02)
    assert fit["observed"] == np.median(np.ceil(at)) and fit["crossed"] == 7
    assert not fit["power"]


def test_the_interval_covers_as_often_as_it_says():
    """At 95 % or more; of 60, 49 or fewer would have a probability of 0.03 %."""
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(60):
        rates = rng.normal(0.3, 0.02, 9)[:, None]
        fit = law(table(-36 + rates * K[:60] + rng.normal(0, 0.3, (9, 60))))
        covered += fit["rate_low"] <= 0.3 <= fit["rate_high"]
    assert covered >= 50


def test_what_is_left_when_both_solves_have_converged_is_no_peak():
    rise_and_fall = np.maximum(-36 + 0.3 * np.minimum(K, 80) - 0.3 * np.maximum(K - 80, 0), -34)
    fit = law(table(np.tile(rise_and_fall, (6, 1))))
    assert fit["largest"] == pytest.approx(np.exp(-12)) and fit["largest_at"] == 80
    assert fit["settled"] == pytest.approx(np.exp(-34)) and fit["rate"] == pytest.approx(0.3)


def test_without_growth_the_level_is_that_of_the_second_half():
    fit = law(table(np.tile(-36 + 0.5 * np.minimum(K, 4), (6, 1))))
    assert fit["nothing"] == "no growth phase: no steady 100-fold rise" and np.isnan(fit["rate"])
    assert fit["settled"] == pytest.approx(np.exp(-34))


def test_fewer_than_six_samples_have_no_interval_and_fewer_than_three_no_rate():
    samples = noisy(np.tile(-36 + 0.2 * K, (6, 1)).ravel()).reshape(6, -1)
    five, two = law(table(samples[:5])), law(table(samples[:2]))
    assert five["rate"] == pytest.approx(0.2, rel=0.01) and np.isnan(five["rate_low"])
    assert np.isnan(two["rate"]) and two["nothing"] == "2 samples, a rate needs 3" and two["largest"] > 0
    assert law(table(samples[:1]))["nothing"] == "1 sample, a rate needs 3"


def test_a_tolerance_that_is_not_crossed_is_not_observed():
    fit = law(table(np.minimum(-36 + 0.2 * K, -20) + np.zeros((6, 1))), tolerance=1e-3)
    assert fit["crossed"] == 0 and np.isnan(fit["observed"]) and fit["predicted"] > 100


def test_without_a_tolerance_nothing_is_predicted():
    fit = law(table(np.tile(-36 + 0.1 * K, (6, 1))))
    assert np.isnan(fit["predicted"]) and np.isnan(fit["observed"]) and fit["crossed"] == 0


def test_equal_solves_have_no_difference():
    fit = law(pd.DataFrame(np.zeros((20, 6))), tolerance=1e-8)
    assert fit["nothing"] == "no difference in half of the samples at any step" and fit["crossed"] == 0


def test_samples_that_do_not_differ_are_left_out_of_the_rate():
    samples = np.exp(np.tile(-36 + 0.2 * K, (6, 1)))
    samples[0] = 0
    samples[1] = np.nan
    fit = law(pd.DataFrame(samples.T))
    assert fit["rates"] == 4 and fit["rate"] == pytest.approx(0.2)


def test_infinite_and_undefined_differences_are_left_out():
    samples = np.exp(np.tile(-36 + 0.2 * K, (6, 1)))
    samples[:, 150:] = np.inf
    samples[2, 30:40] = np.nan
    fit = law(pd.DataFrame(samples.T))
    assert fit["last"] == 149 and fit["rate"] == pytest.approx(0.2)


def test_a_power_of_the_iteration_is_said_to_be_one():
    k = np.arange(1.0, 12)
    assert law(table(np.tile(-36 + 4 * np.log(k), (6, 1)), k))["power"]


def test_recorded_iterations_count_not_places():
    steps = np.arange(0, 400, 10)
    fit = law(table(np.tile(-36 + 0.05 * steps, (6, 1)), steps))
    assert fit["rate"] == pytest.approx(0.05) and (fit["first"], fit["last"]) == (0, 390)
