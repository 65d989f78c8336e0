"""Prices of plans beside whole steps that the calibration ran: factors of their parts, and what remains."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.predict.plans.price import Prices
from analysis.predict.plans.whole import FEWEST, USUAL, Whole, off, whole_of
from tests.analysis.plan_runs import elements, program
from tests.analysis.test_plans import measured


def test_the_factors_of_kernels_rest_and_messages_are_found():
    rng = np.random.default_rng(0)
    parts = rng.uniform(1, 10, (40, 3))
    found = whole_of(parts, parts @ [1.1, 0.7, 1.6] * np.exp(0.03 * rng.standard_normal(40)))
    assert found.kernels == pytest.approx(1.1, abs=0.04) and found.rest == pytest.approx(0.7, abs=0.05)
    assert found.messages == pytest.approx(1.6, abs=0.06)
    assert 0.02 < found.error < 0.045
    assert FEWEST + 40 - 4 <= found.freedom < FEWEST + 40 - 3  # the growth is bound by what it is near


def test_kernels_of_long_steps_take_longer_by_what_the_calibrations_steps_show():
    seconds = np.geomspace(1e-3, 1e-2, 30)
    found = whole_of(np.outer(seconds, [1.0, 0.0, 0.0]), seconds * (1.0 + 0.04 * np.log(seconds / 3e-3)))
    assert found.growth == pytest.approx(0.04, abs=0.01)
    for each in (1e-3, 3e-3, 1e-2):
        assert found.of_kernels(each) == pytest.approx(1.0 + 0.04 * np.log(each / 3e-3), abs=0.01)
    assert found.of_kernels(1.0) == found.of_kernels(1e-2)  # not beyond what was measured
    assert Whole(kernels=1.2).of_kernels(1.0) == 1.2


def test_the_error_of_a_price_is_not_that_of_the_measured_step():
    rng = np.random.default_rng(2)
    parts = rng.uniform(1, 10, (4000, 3))
    taken = parts.sum(axis=1) * np.exp(0.04 * rng.standard_normal(4000) + 0.03 * rng.standard_normal(4000))
    assert whole_of(parts, taken).error == pytest.approx(0.05, rel=0.05)
    assert whole_of(parts, taken, 0.03**2).error == pytest.approx(0.04, rel=0.05)
    assert whole_of(parts, taken, 0.2**2).error == 0.0


def test_a_few_steps_that_are_at_their_prices_by_chance_say_little():
    parts = np.random.default_rng(3).uniform(1, 10, (FEWEST, 3))
    found = whole_of(parts, parts.sum(axis=1))
    assert found.error == pytest.approx(USUAL, rel=0.25) and found.freedom > FEWEST


def test_few_steps_say_nothing_and_steps_without_messages_nothing_of_messages():
    assert whole_of(np.ones((FEWEST - 1, 3)), [3.0] * (FEWEST - 1)) == Whole()
    work = np.arange(1.0, 5.0)
    found = whole_of(np.outer(work, [1.0, 0.0, 0.0]), 1.2 * work)
    assert found.kernels == pytest.approx(1.2, rel=0.01) and (found.rest, found.messages) == pytest.approx(
        (1, 1)
    )
    assert found.freedom == pytest.approx(FEWEST + 4 - 1.5, abs=0.3)  # four steps say little of growth


def test_a_price_has_the_factor_and_the_error_of_the_calibrations_steps():
    """Steps took 1.2 times what their kernels take alone, give or take a tenth."""
    works = {elements(n): 1e-9 * n for n in range(1000, 9000, 1000)}
    quiet = measured(works, noise=np.zeros((0, 1)), delays=np.zeros(1), size=1)
    rng = np.random.default_rng(1)
    steps = tuple(
        (program([work], [((0, 3),)], title=str(k)), 3.6e-9 * work.dims[0] * float(np.exp(0.1 * rng.standard_normal())))
        for k, work in enumerate(works)
    )  # fmt: skip
    one = program([elements(4000)], [((0, 3),)])

    def samples(**more):
        return Prices([replace(quiet, **more)]).of(one, replays=1000, clock="wall").samples

    assert np.median(samples()) == pytest.approx(12e-6, rel=0.02)
    corrected = samples(steps=steps)
    assert np.median(corrected) == pytest.approx(14.4e-6, rel=0.1)
    assert np.log(corrected).std() > 2 * np.log(samples()).std()


def test_a_step_is_priced_without_the_measured_times_of_its_own_kernels():
    """Of kernels whose times no model predicts: each step took as long as measured, and yet other sizes are off."""
    rng = np.random.default_rng(4)
    works = {
        elements(n): 1e-9 * n * float(np.exp(0.3 * rng.standard_normal())) for n in range(1000, 25000, 1000)
    }
    steps = tuple((program([w], [((0, 3),)], title=str(k)), 3 * s) for k, (w, s) in enumerate(works.items()))
    known = measured(works, steps=steps, noise=np.zeros((0, 1)), delays=np.zeros(1), size=1)
    priced = Prices([known]).of(program([elements(4500)], [((0, 3),)]), replays=2000, clock="wall")
    assert priced.fit.kernels == pytest.approx(1.0, abs=0.05)
    assert 0.25 < np.log(priced.samples).std() < 0.36  # the error of the kernel's model, once


def test_the_error_of_a_step_belongs_to_its_plan():
    fit = Whole(error=0.1, freedom=5)
    one, again, other = (off(fit, title, 500, 1) for title in ("a", "a", "b"))
    assert (one == again).all() and abs(np.corrcoef(one, other)[0, 1]) < 0.2
    assert (off(Whole(), "a", 3, 1) == 1.0).all()
