"""The growth of variability with N: the law is recovered, its interval covers, and too little says so."""

import numpy as np
import pytest

from analysis.load.frames import load
from analysis.statistics import line
from analysis.studies.sums.fit import power_law
from analysis.studies.sums.runs import sums
from analysis.studies.sums.tables import known_of

from .sums_runs import write_sums

SIZES = [10, 100, 1000, 10_000]


def scattered(seed, alpha, beta, arrays=30, spread=0.5):
    rng = np.random.default_rng(seed)
    return [beta * n**alpha * np.exp(rng.normal(0, spread, arrays)) for n in SIZES]


def test_an_exact_law_is_recovered():
    fit = power_law(SIZES, [np.full(5, 3e-16 * n**0.5) for n in SIZES])
    assert fit["alpha"] == pytest.approx(0.5) and fit["beta"] == pytest.approx(3e-16)
    assert fit["alpha_low"] == pytest.approx(0.5) and fit["alpha_high"] == pytest.approx(0.5)
    assert fit["nothing"] == ""


def test_the_intervals_cover_as_often_as_they_say():
    """At 95 %; of 60, 49 or fewer would have a probability of 0.03 %."""
    fits = [power_law(SIZES, scattered(seed, 0.7, 1e-16)) for seed in range(60)]
    assert sum(m["alpha_low"] <= 0.7 <= m["alpha_high"] for m in fits) >= 50
    assert sum(m["beta_low"] <= 1e-16 <= m["beta_high"] for m in fits) >= 50
    assert all(m["alpha_high"] - m["alpha_low"] < 0.3 for m in fits)


def test_two_sizes_are_no_law():
    fit = power_law(SIZES[:2], scattered(1, 1, 1)[:2])
    assert np.isnan(fit["alpha"]) and "a fit needs 3" in fit["nothing"]


def test_one_array_of_a_size_has_no_interval():
    fit = power_law(SIZES, [np.array([float(n)]) for n in SIZES])
    assert fit["alpha"] == pytest.approx(1.0) and np.isnan(fit["alpha_low"]) and "one array" in fit["nothing"]


def test_lines_are_those_of_least_squares():
    x, y = np.log(SIZES), np.random.default_rng(1).normal(size=(3, 4))
    slope, intercept = line(x, y)
    assert np.allclose(np.polyfit(x, y.T, 1), [slope, intercept])


def test_the_frames_say_what_was_used(tmp_path):
    """At n = 10 most arrays do not differ: that size is left out, and said to be."""
    values = {"sum:sptr:native:10": np.ones((3, 2))}
    values["sum:spa:native:10"] = [[1.0, 1.0], [1.0, 1.0], [1.0, 2.0]]
    for n in SIZES[1:]:
        values[f"sum:sptr:native:{n}"] = np.ones((3, 2))
        values[f"sum:spa:native:{n}"] = np.array([[1.0, 1.0 + n**0.5 * 2.0**-40]] * 3)
    write_sums(tmp_path / "r", values)
    results = known_of(sums(load([tmp_path])))
    assert set(results.fits["variant"]) == {"spa"}  # what repeats has no law
    largest = results.fits.set_index("metric").loc["v_s_max"]
    assert largest["sizes"] == 3 and largest["left_out"] == 1 and largest["samples"] == 2
    assert largest["alpha"] == pytest.approx(0.5, abs=0.01)


def test_worst_orders_stand_beside_what_was_seen(tmp_path):
    values = {"sum:sptr:native:8": [[4.0, 4.0]] * 2, "sum:spa:emulated:8": [[4.0, 5.0], [3.0, 4.0]]}
    worst = {"worst-low:spa:emulated:8": [2.0, 3.5], "worst-high:spa:emulated:8": [6.0, 6.0]}
    write_sums(tmp_path / "r", values, worst=worst)
    table = known_of(sums(load([tmp_path]))).worst.set_index("array")
    assert table["bound"].tolist() == [0.5, 0.5] and table["v_s_max"].tolist() == [0.25, 0.25]
    assert table["share"].tolist() == [0.25, 0.4] and table["outside"].tolist() == [False, True]
