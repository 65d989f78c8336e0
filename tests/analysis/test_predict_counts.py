"""Iterations for sizes without runs."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from analysis.predict.reading.skeleton import skeleton
from analysis.predict.simulation.counts import iterated, law_of, power_law
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.target import target
from tests.analysis.predict_programs import STEPS, write_program


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Of sizes 64, 128 and 256 with 4, 8 and 16 iterations in a step."""
    place = tmp_path_factory.mktemp("counts")
    return [skeleton(write_program(place / str(n), n, calls=n // 16)) for n in (64, 128, 256)]


def test_a_power_law_and_its_interval():
    law = power_law([1, 2, 4], [3, 6, 12], 8)
    assert (law.exponent, law.count, law.outside) == (pytest.approx(1), pytest.approx(24), True)
    assert law.interval == pytest.approx((24, 24)) and not power_law([1, 2, 4], [3, 6, 12], 3).outside
    two = power_law([1, 4], [3, 6], 2)
    assert two.count == pytest.approx(np.sqrt(18)) and (two.freedom, two.interval) == (0, (0.0, np.inf))
    assert power_law([2, 2], [3, 4], 8) is None


def test_the_interval_of_a_law_covers_four_of_five_counts():
    rng, inside, trials = np.random.default_rng(5), 0, 400
    sizes = np.array([1, 2, 4, 8])
    for _ in range(trials):
        counts = 10 * np.append(sizes, 16) ** 0.5 * np.exp(0.1 * rng.standard_normal(5))
        low, high = power_law(sizes, counts[:4], 16).interval
        inside += low <= counts[4] <= high
    low, high = binom.ppf([0.0005, 0.9995], trials, 0.8)
    assert low <= inside <= high


@pytest.mark.parametrize(("ratio", "calls"), [(1.0, 8), (0.5, 4), (2.0, 16), (1.25, 10), (5.0, 40)])
def test_iterations_are_repeated_or_left_out(runs, ratio, calls):
    moved, share = iterated(runs[1], ratio)
    assert len(moved.waits) == STEPS * calls and len(moved.order) == len(moved.waits)
    assert moved.waits.groupby("step").size().tolist() == [calls] * STEPS
    work = moved.segments[[key[2] == "work" and key[1] != "" for key in moved.segments["key"]]]
    assert len(work) == STEPS * calls and sorted(work["wait"]) == list(range(STEPS * calls))
    assert 0.5 < share < 1


def test_a_solve_may_wait_once_more_than_it_iterates(runs):
    once_more = replace(runs[1], iterations={step: [7.0] for step in runs[1].steps.tolist()})
    moved, _ = iterated(once_more, 2.0)
    assert moved.waits.groupby("step").size().tolist() == [15] * STEPS
    assert iterated(replace(once_more, iterations={1: [5.0]}), 2.0) is None


def test_a_ratio_that_is_no_whole_number_holds_on_average(runs):
    moved, _ = iterated(runs[0], 1.1)
    assert len(moved.waits) == round(1.1 * 4 * STEPS)


def test_without_counts_nothing_is_moved(tmp_path):
    run = skeleton(write_program(tmp_path / "run"))
    assert iterated(run, 2.0) is None and law_of([run, run], 256) is None


def test_a_deck_that_was_not_run_has_the_iterations_of_the_law(runs):
    between = predict(target(runs[::2], 1, {"grid.n": "128"}), None).prediction
    # Eight iterations of 0.5 + 2 ms and a sum of 0.1, and what follows the last.
    assert between.median == pytest.approx(1e-3 * (8 * 2.6 + 0.5), rel=0.03)
    assert between.extrapolated == ()
    assert any(
        "iterations grow as size^1.00 in the runs: 8 in a step (no" in each for each in between.remarks
    )
    beyond = predict(target(runs, 1, {"grid.n": "512"}), None).prediction
    assert beyond.median == pytest.approx(1e-3 * (32 * 8.6 + 0.5), rel=0.03)
    assert beyond.extrapolated == ("sizes beyond those of the runs", "numbers of iterations")
    own = target(runs, 1, {"grid.n": "256"})
    assert own.law is None and own.program is runs[2]
    alone = predict(target(runs[:1], 1, {"grid.n": "128"}), None).prediction
    assert alone.extrapolated == ("sizes beyond those of the runs", "numbers of iterations")
    assert any("the prediction assumes as many iterations as in 64" in each for each in alone.remarks)
