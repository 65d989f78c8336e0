"""Statistics of sums, against results by hand."""

import itertools
import math

import numpy as np
import pytest

from analysis.statistics import middle, quantile
from analysis.studies.sums.statistics import blocks, statistics
from kernels import bits

NAN, INF = math.nan, math.inf


def of(samples, reference=NAN, truth=NAN):
    """Statistics of one array."""
    columns = statistics(np.array([samples], np.float64), np.array([reference]), np.array([truth]))
    assert {column.shape for column in columns.values()} == {(1,)}
    return {name: float(column[0]) for name, column in columns.items()}


def test_by_hand():
    row = of([4.0, 5.0, 4.0, 2.0], reference=4.0, truth=np.nextafter(4.0, 5.0))
    assert row["samples"] == 4 and row["distinct"] == 3
    assert row["effective"] == 16 / (4 + 1 + 1)
    assert row["median"] == 4.0 and row["shift"] == 0
    assert row["pair_max"] == 3 / 5
    assert row["pair_median"] == 0.25  # of |1 - 5/4| and |1 - 2/4|, the lower
    assert row["v_s_max"] == 0.5 and row["v_s_median"] == 0  # of 0, 0.25, 0, 0.5
    assert row["ulp_max"] == bits.ulp_distance(4.0, 2.0)
    assert row["own_ulp"] == bits.ulp_distance(2.0, 5.0)
    assert row["error_median"] == 1
    assert math.isnan(row["bound"]) and row["undefined"] == 0


def test_the_bound_is_given_where_nothing_differs():
    assert of([4.0] * 300)["bound"] == pytest.approx(3 / 300, rel=0.01)


def test_the_change_of_algorithm_is_apart_from_run_to_run_variation():
    row = of([8.0, 8.0, 8.0], reference=4.0)
    assert (row["distinct"], row["pair_max"], row["pair_median"]) == (1, 0, 0)
    assert row["shift"] == row["v_s_max"] == 1.0


@pytest.mark.parametrize("samples, reference, v_s_max, undefined, distinct", [
    ([0.0, 0.0], 0.0, 0.0, 0, 1),
    ([0.0, -0.0], 0.0, 0.0, 0, 2),
    ([0.0, 1.0], 0.0, INF, 0, 2),
    ([-4.0, 4.0], 4.0, 0.0, 0, 2),
    ([NAN, 3.0], 4.0, 0.25, 1, 2),
    ([NAN, NAN], NAN, 0.0, 0, 1),
    ([3.0, 4.0], NAN, NAN, 2, 2),
    ([INF, 4.0], 4.0, INF, 0, 2),
    ([INF, INF], INF, 0.0, 0, 1),
    ([4.0, INF], INF, 1.0, 0, 2),
    ([5e-324, 1e-323], 5e-324, 1.0, 0, 2),
])  # fmt: skip
def test_cases_that_the_formula_leaves_open(samples, reference, v_s_max, undefined, distinct):
    row = of(samples, reference)
    np.testing.assert_equal(row["v_s_max"], v_s_max)
    assert (row["undefined"], row["distinct"]) == (undefined, distinct)


def test_against_a_plain_loop():
    rng = np.random.default_rng(3)
    values = rng.integers(-3, 9, (50, 31)) / 8 + 1.0
    values[rng.random(values.shape) < 0.02] = NAN
    reference, truth = rng.integers(1, 9, 50) / 8, rng.integers(1, 9, 50) / 8
    columns = statistics(values, reference, truth)
    for i, row in enumerate(values):
        counts = np.unique(row.view(np.uint64), return_counts=True)[1]
        assert columns["distinct"][i] == len(counts)
        assert columns["effective"][i] == pytest.approx(1 / ((counts / 31) ** 2).sum())
        known = row[~np.isnan(row)]
        size = np.sort(np.abs(1 - np.abs(known / reference[i])))
        assert columns["v_s_max"][i] == pytest.approx(size[-1])
        assert columns["v_s_quantile"][i] == pytest.approx(size[math.ceil(0.95 * len(size)) - 1])
        every = [1 - abs(a) / abs(b) for a, b in itertools.permutations(known, 2)]
        assert columns["pair_max"][i] == pytest.approx(max(every))
        assert columns["error_max"][i] == np.nanmax(bits.ulp_distance(truth[i], row))


def test_quantiles_are_elements_and_leave_the_undefined_out():
    x = np.array([[3.0, NAN, 1.0, 2.0], [NAN] * 4, [5.0, INF, 4.0, 6.0]])
    np.testing.assert_equal(middle(x), [2.0, NAN, 5.0])
    np.testing.assert_equal(quantile(x, 1.0), [3.0, NAN, INF])
    np.testing.assert_equal(quantile(x, 0.0), [1.0, NAN, 4.0])
    np.testing.assert_equal(quantile(np.empty((2, 0)), 0.5), [NAN, NAN])


def test_stretches_of_any_length_are_worked_on_together(monkeypatch):
    monkeypatch.setattr("analysis.studies.sums.statistics.CHUNK", 4)
    values = np.arange(12.0)
    begin = np.array([0, 2, 3, 5, 10])
    stretches = {
        int(row): block.tolist()
        for rows, many in blocks(values, begin)
        for row, block in zip(rows, many, strict=True)
    }
    assert stretches == {0: [0, 1], 1: [2], 2: [3, 4], 3: [5, 6, 7, 8, 9], 4: [10, 11]}


def test_numbers_undoes_ranks():
    x = np.array([0.0, -0.0, 1.5, -1.5, INF, -INF, NAN, 5e-324, -5e-324])
    assert bits.numbers(bits.ranks(x)).view(np.uint64).tolist() == x.view(np.uint64).tolist()
