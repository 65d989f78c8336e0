"""The price list: medians, their intervals, and the ratios."""

import math

import numpy as np
import pytest

from analysis.load.frames import load
from analysis.statistics import median_interval
from analysis.studies.sums.price import prices, ratio_interval
from analysis.studies.sums.runs import sums
from tests.analysis.sums_runs import CONFIG, write_sums

SPA, SPTR, NUMPY = "sum:spa:native:8", "sum:sptr:native:8", "sum:numpy:numpy:8"


def of(tmp_path):
    return prices(sums(load([tmp_path]))).set_index(["variant", "backend"])


def write(out, times, **more):
    values = {name: np.ones((1, np.atleast_2d(ms).shape[1])) for name, ms in times.items()}
    return write_sums(out, values, times, **more)


def test_a_call_takes_as_long_as_on_its_slowest_rank_and_moves_the_bytes_of_all(tmp_path):
    write(tmp_path / "r", {SPA: [[1.0, 2.0, 9.0], [3.0, 1.0, 1.0]]}, size=2, nbytes=1500)
    row = of(tmp_path).loc[("spa", "native")]
    assert row["median_s"] == 0.003 and row["samples"] == 3
    assert row["gb_per_s"] == pytest.approx(2 * 1500 / 0.003 / 1e9)


def test_ranks_with_arrays_of_their_own_are_timed_apart(tmp_path):
    config = CONFIG | {"method": {"split": "arrays"}}
    write(tmp_path / "r", {SPA: [[1.0, 2.0, 9.0], [3.0, 1.0, 1.0]]}, size=2, nbytes=1500, config=config)
    row = of(tmp_path).loc[("spa", "native")]
    assert row["median_s"] == 0.0015 and row["samples"] == 6
    assert row["gb_per_s"] == pytest.approx(1500 / 0.0015 / 1e9)


def test_the_base_is_the_fastest_way_without_a_guarantee_or_of_a_library(tmp_path):
    write(tmp_path / "r", {SPA: [2.0] * 3, SPTR: [3.0] * 3, NUMPY: [1.0] * 3})
    table = of(tmp_path)
    assert table["ratio"].to_dict() == {
        ("spa", "native"): 2.0,
        ("sptr", "native"): 3.0,
        ("numpy", "numpy"): 1.0,
    }
    assert set(table["base"]) == {"numpy (numpy)"}
    assert table["guarantee"].tolist() == ["none", "run", "run"]


def test_without_one_it_is_the_sum_of_a_library(tmp_path):
    write(tmp_path / "r", {SPTR: [3.0] * 3, NUMPY: [1.0] * 3})
    assert of(tmp_path)["ratio"].to_dict() == {("sptr", "native"): 3.0, ("numpy", "numpy"): 1.0}


def test_a_slow_variant_without_a_guarantee_makes_no_guarantee_look_cheap(tmp_path):
    write(tmp_path / "r", {SPA: [9.0] * 3, SPTR: [3.0] * 3, NUMPY: [1.0] * 3})
    assert of(tmp_path).loc[("sptr", "native")]["ratio"] == 3.0


def test_where_nothing_is_guaranteed_there_is_no_price_to_pay(tmp_path):
    write(tmp_path / "r", {SPA: [9.0] * 3, NUMPY: [1.0] * 3})
    assert of(tmp_path)["ratio"].isna().all()


def test_without_either_there_is_no_ratio(tmp_path):
    write(tmp_path / "r", {SPTR: [3.0] * 3})
    row = of(tmp_path).loc[("sptr", "native")]
    assert np.isnan(row["ratio"]) and row["base"] == "" and row["median_s"] == 0.003


def test_what_is_emulated_has_no_price(tmp_path):
    write(tmp_path / "r", {"sum:ao:emulated:8": [0.1] * 3, SPA: [2.0] * 3, SPTR: [3.0] * 3})
    row = of(tmp_path).loc[("ao", "emulated")]
    assert np.isnan(row["median_s"]) and np.isnan(row["ratio"]) and np.isnan(row["gb_per_s"])
    assert of(tmp_path).loc[("spa", "native")]["base"] == "spa (native)"


def test_ratios_are_taken_within_runs(tmp_path):
    for i, speed in enumerate((1.0, 10.0, 3.0)):  # machines of other speed, the same ratio but for one
        write(tmp_path / f"r{i}", {SPA: [2.0 * speed] * 7, SPTR: [(3.0 + i) * speed] * 7})
    row = of(tmp_path).loc[("sptr", "native")]
    assert row["ratio"] == 2.0 and (row["ratio_low"], row["ratio_high"]) == (1.5, 2.5)
    assert row["samples"] == 21


def test_the_median_lies_between_order_statistics():
    x = np.arange(1.0, 21.0)
    # P(Binomial(20, 1/2) <= 5) = 0.0207, <= 6: 0.0577: the 6th and the 15th of 20.
    assert median_interval(np.random.default_rng(0).permutation(x)) == (10.5, 6.0, 15.0)
    np.testing.assert_equal(median_interval(x[:6]), (3.5, 1.0, 6.0))
    np.testing.assert_equal(median_interval(x[:5]), (3.0, np.nan, np.nan))


def test_the_interval_of_the_median_covers_as_often_as_it_says():
    rng = np.random.default_rng(5)
    for size in (8, 51):
        intervals = [median_interval(x)[1:] for x in rng.lognormal(size=(1000, size))]
        inside = np.mean([low <= 1.0 <= high for low, high in intervals])
        assert inside >= 0.95 - 3 * (0.05 * 0.95 / 1000) ** 0.5


def test_the_interval_of_the_ratio_covers_as_often_as_it_says():
    rng = np.random.default_rng(6)
    inside = 0
    for i in range(400):
        x, y = 2 * rng.lognormal(size=41), rng.lognormal(size=61)
        _, low, high = ratio_interval(x, y, seed=i)
        inside += low <= 2 <= high
    assert abs(inside / 400 - 0.95) <= 3 * (0.05 * 0.95 / 400) ** 0.5


def test_resampled_medians_are_distributed_as_those_of_real_resamples():
    x = np.arange(1.0, 16.0)
    _, low, high = ratio_interval(x, np.ones(15))

    def below(i):  # the median of 15 out of 15 is x[i] or less: 8 or more of the 15 are
        p = (i + 1) / 15
        return sum(math.comb(15, k) * p**k * (1 - p) ** (15 - k) for k in range(8, 16))

    for i, tail in ((x.tolist().index(low), 0.025), (x.tolist().index(high), 0.975)):
        assert below(i - 1) - 0.01 < tail < below(i) + 0.01


def test_times_of_many_samples_cost_little_to_bound():
    x = np.random.default_rng(9).normal(10, 1, 1_000_001)
    median, low, high = median_interval(x)
    assert low < median < high and high - low < 0.01
