"""Predicted learning curves: known curves are recovered, noise widens, and failed fits are reported."""

import json
from pathlib import Path

import numpy as np
import pytest

from kernels.learning.curves import MODELS, predict

RECORDED = Path(__file__).with_name("learning_curves.json")
U = np.arange(1.0, 13.0)  # twelve points, whose scaled abscissa is themselves
KNOWN = {
    "pow3": lambda u: 0.9 - 0.5 * (1 + u) ** -0.7,
    "exp3": lambda u: 0.35 + 1.9 * np.exp(-0.4 * u),
    "log-power": lambda u: 0.88 / (1 + ((1 + u) / np.e) ** -1.5),
    "ilog2": lambda u: 0.95 - 0.4 / np.log(2 + u),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_known_curve_comes_back_and_its_model_has_the_weight(name):
    found = predict(U, KNOWN[name](U), 24.0)
    assert found.mean == pytest.approx(KNOWN[name](24.0), abs=1e-6) and not found.failed
    assert max(found.models, key=found.models.get) == name and found.models[name] > 0.999
    assert sum(found.models.values()) == pytest.approx(1) and found.sigma < 1e-6


@pytest.mark.parametrize("name", KNOWN)
def test_the_unit_of_the_abscissa_and_of_the_values_is_of_no_weight(name):
    plain = predict(U, KNOWN[name](U), 24.0)
    scaled = predict(0.003 * U, 100 * KNOWN[name](U), 0.003 * 24)
    assert scaled.mean == pytest.approx(100 * plain.mean, rel=1e-6)


def test_noise_is_within_sigma_as_often_as_it_should_and_sigma_grows_with_it():
    rng = np.random.default_rng(1)
    away, sigmas = [], {}
    for noise in (0.002, 0.02):
        curves = [KNOWN["exp3"](U) + noise * rng.standard_normal(len(U)) for _ in range(40)]
        found = [predict(U, y, 16.0) for y in curves]
        away += [abs(each.mean - KNOWN["exp3"](16.0)) / each.sigma for each in found]
        sigmas[noise] = np.median([each.sigma for each in found])
    assert 3 < sigmas[0.02] / sigmas[0.002] < 30
    assert np.mean(np.array(away) < 2) > 0.8


def test_a_constant_stays_what_it_is():
    found = predict(U, np.full(12, 0.7), 100.0)
    assert (found.mean, found.sigma, found.failed) == (0.7, 0.0, False)


def test_too_few_points_give_the_last_value_and_say_so():
    one, two = predict([1.0], [0.5], 9.0), predict([1.0, 2.0], [0.5, 0.75], 9.0)
    assert (one.mean, one.sigma, one.failed, one.models) == (0.5, np.inf, True, {})
    assert (two.mean, two.sigma, two.failed) == (0.75, 0.125, True)
    three = predict([1.0, 2.0, 3.0], [0.5, 0.7, 0.75], 9.0)
    assert not three.failed and set(three.models) == {"ilog2"}


def test_points_at_one_place_and_an_abscissa_of_zeros_are_no_error():
    assert np.isfinite(predict([0.0] * 5, [1.0, 0.9, 1.1, 1.0, 1.0], 0.0).mean)
    assert np.isfinite(predict([0.0, 0.0, 1.0, 1.0, 1.0, 2.0], [2.0, 2.1, 1.0, 1.1, 1.0, 0.8], 3.0).mean)


def test_large_and_small_values_do_not_overflow():
    for factor in (1e-300, 1e300):
        found = predict(U, factor * KNOWN["pow3"](U), 24.0)
        assert found.mean / factor == pytest.approx(KNOWN["pow3"](24.0), abs=1e-3)


@pytest.mark.parametrize("x, y, at, message", [
    ([], [], 1.0, "at least one"),
    ([1.0, 2.0], [1.0], 3.0, "as many x as y"),
    ([[1.0]], [[1.0]], 3.0, "as many x as y"),
    ([1.0, 2.0], [1.0, np.nan], 3.0, r"y\[1\] of a learning curve is nan"),
    ([1.0, np.inf], [1.0, 1.0], 3.0, r"x\[1\] of a learning curve is inf"),
    ([1.0, 2.0], [1.0, 1.0], np.nan, r"at\[0\]"),
    ([2.0, 1.0], [1.0, 1.0], 3.0, "ascend"),
    ([-1.0, 1.0], [1.0, 1.0], 3.0, "0 or more"),
    ([1.0, 2.0], [1.0, 1.0], 1.5, "2.0 or later"),
])  # fmt: skip
def test_what_is_no_curve_is_refused(x, y, at, message):
    with pytest.raises(ValueError, match=message):
        predict(x, y, at)


def test_a_prediction_repeats_bit_by_bit():
    y = KNOWN["pow3"](U) + 0.01 * np.random.default_rng(3).standard_normal(12)
    first, second = predict(U, y, 20.0), predict(U, y, 20.0)
    assert np.float64(first.mean).tobytes() == np.float64(second.mean).tobytes() and first == second


def test_every_model_has_more_points_than_parameters():
    assert {name: model.parameters for name, model in MODELS.items()} == {
        "pow3": 3, "exp3": 3, "log-power": 3, "ilog2": 2,
    }  # fmt: skip


@pytest.mark.parametrize("abscissa", ["steps", "rates"])
def test_the_ends_of_recorded_curves_are_nearer_than_the_last_value_where_learning_is_smooth(abscissa):
    """What `python -m benchmarks.learning curves` recorded; of `sign`, whose first half is noise, sigma says so."""
    away, last, within = [], [], 0
    for recorded in json.loads(RECORDED.read_text())["curves"]:
        x, y = recorded[abscissa], recorded["accuracy"]
        half = len(y) // 2
        found = predict(x[:half], y[:half], x[-1])
        within += abs(found.mean - y[-1]) < 2 * found.sigma
        if recorded["wire"] != "sign":
            away.append(abs(found.mean - y[-1]))
            last.append(abs(y[half - 1] - y[-1]))
    assert len(away) == 8 and np.mean(away) < 0.75 * np.mean(last)
    assert within >= 10  # of 12
