"""The spread of predictions: launches with known differences, and whether intervals cover them."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from analysis.predict.costs.segments import SegmentCost, segment_costs
from analysis.predict.reading.skeleton import skeleton
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.spread import (
    LEAST_SPREAD,
    OTHER_RANKS,
    REPEATS,
    SPREAD,
    WIDENED,
    Spread,
    between_launches,
    fit_error,
    spread_of,
)
from analysis.predict.simulation.target import target
from tests.analysis.predict_programs import write_program

NAN = float("nan")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """One run whose every step takes 8.3 ms."""
    return skeleton(write_program(tmp_path_factory.mktemp("spread") / "run"))


def launched(program, factor, repeats=(1.0,), number=0):
    """A launch of the program that takes `factor` times as long, its repeats that many times as long each."""
    segments = program.segments.assign(ns=program.segments["ns"] * factor * repeats[0])
    times = [(program.cpu_s * factor * each, program.wall_s * factor * each) for each in repeats]
    return replace(program, segments=segments, repeats=times, hash=f"{number:064x}")


def covered(program, rng, trials, launches, between, within):
    """How many of `trials` futures lie in the 80 % interval predicted from `launches` of two repeats each."""
    inside = 0
    for trial in range(trials):
        factors = np.exp(between * rng.standard_normal(launches + 1))
        repeats = np.exp(within * rng.standard_normal((launches + 1, 2)))
        runs = [launched(program, factors[i], repeats[i], 1 + i + trial * launches) for i in range(launches)]
        low, high = predict(target(runs, 1, {}), None, seed=trial).prediction.interval
        inside += low <= program.cpu_s * factors[-1] * repeats[-1, 0] <= high
    return inside


@pytest.mark.parametrize(("launches", "between", "within"), [(2, 0.1, 0.0), (3, 0.2, 0.05), (5, 0.05, 0.05)])
def test_intervals_cover_four_of_five_runs_of_known_spread(program, launches, between, within):
    trials = 60
    inside = covered(program, np.random.default_rng(launches), trials, launches, between, within)
    low, high = binom.ppf([0.0005, 0.9995], trials, 0.8)
    assert low <= inside <= high


def test_launches_of_one_configuration_are_pooled(program):
    a, b, c = (launched(program, x) for x in (1.0, np.exp(0.2), np.exp(0.4)))
    other = {**program.attributes, "problem": "another"}
    d, e = (replace(launched(program, x), attributes=other) for x in (5.0, 5.0 * np.exp(0.1)))
    deviation, freedom, launches = between_launches([a, b, c, d, e], "cpu")
    assert (deviation, freedom, launches) == (pytest.approx(np.sqrt((0.08 + 0.005) / 3)), 3, True)
    assert between_launches([a, d], "cpu") == (LEAST_SPREAD, 0, True)
    assert between_launches([a, a], "wall") == (LEAST_SPREAD, 1, True)


def test_repeats_of_one_launch_are_said_to_be_too_near(program):
    one = launched(program, 1.0, (1.0, np.exp(0.2)))
    spread = spread_of([one], one, {}, NAN, "cpu", False, one.size)
    assert (spread.launches, spread.freedom) == (pytest.approx(np.sqrt(0.02)), 1)
    assert spread.remarks == (REPEATS,) and spread.machine == 0.0
    assert REPEATS in predict(target([one], 1, {}), None).prediction.remarks


def test_without_repeats_the_calibration_alone_says_how_far_runs_lie(program):
    one = launched(program, 1.0)
    assert spread_of([one], one, {}, NAN, "cpu", False, one.size) == Spread(SPREAD)
    assert spread_of([one], one, {}, 0.3, "cpu", False, one.size) == Spread(0.3)
    assert spread_of([one], one, {}, 0.0, "cpu", False, one.size) == Spread(LEAST_SPREAD)


def test_other_rank_counts_are_less_sure_until_three_shares_were_run(program):
    one = launched(program, 1.0)
    moved, checked = (replace(one, work=one.work * each) for each in (0.5, 0.25))
    near, other = (spread_of([one, moved], one, {}, 0.02, "cpu", False, size) for size in (1, 2))
    assert (near.ranks, other.ranks) == (0.0, OTHER_RANKS)
    assert WIDENED in other.remarks and WIDENED not in near.remarks
    costs = segment_costs([one, moved, checked], one, 0.0)
    assert spread_of([one, moved, checked], one, costs, 0.02, "cpu", True, 2).ranks == 0.0
    logs = np.log(Spread(0.0, ranks=0.1).factors(4000, *map(np.random.default_rng, (1, 2))))
    assert logs.std() == pytest.approx(0.1, rel=0.05)


def test_parts_add_up_in_quadrature():
    draws = Spread(0.03, 0.04, 10**6, 10**6).factors(20_000, *map(np.random.default_rng, (1, 2)))
    assert np.log(draws).std() == pytest.approx(0.05, rel=0.03)
    draws = Spread(0.03, 0.0, 0, 1, 0.04, 10**6).factors(20_000, *map(np.random.default_rng, (1, 2)))
    assert np.log(draws).std() == pytest.approx(0.05, rel=0.03)


def test_targets_share_the_machine_and_not_what_is_wrong_with_their_sources():
    one = Spread(0.1, 0.1, 10**6, 10**9)
    rng = np.random.default_rng
    first, second = (np.log(one.factors(2000, rng(1), rng(own))) for own in (2, 3))
    np.testing.assert_allclose(first, second, atol=1e-3)
    unsure = replace(one, sources=1)
    first, second = (np.log(unsure.factors(2000, rng(1), rng(own))) for own in (2, 3))
    assert (first - second).std() == pytest.approx(0.1 * np.sqrt(2), rel=0.06)


def test_what_three_shares_leave_over_is_the_error_of_the_fit(program):
    runs = []
    for work, factor in ((1.0, 1.0), (2.0, np.exp(0.1)), (4.0, 1.0)):
        segments = program.segments.assign(ns=program.segments["ns"] * work * factor)
        runs.append(replace(program, work=work, segments=segments))
    keys = program.segments.groupby("key")["ns"].mean()
    costs = {key: SegmentCost(0.0, ns / 1e9, np.ones(1), "") for key, ns in keys.items()}
    deviation, freedom = fit_error(runs, costs, 0.0)
    assert (deviation, freedom) == (pytest.approx(0.1 * np.sqrt(2 / 3)), 1)
    assert fit_error(runs[:2], costs, 0.0) == (0.0, 0)
    assert fit_error(runs, costs, 0.2) == (0.0, 1)
