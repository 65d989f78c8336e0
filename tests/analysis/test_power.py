"""The meaning of no difference: its bound, the number of runs that would show one, and the sentences for both."""

import pytest

from analysis.power import bounded, percent, power_note, runs_needed
from kernels.bits import bound


@pytest.mark.parametrize("p, confidence, n", [(0.01, 0.95, 299), (0.001, 0.95, 2995), (0.5, 0.95, 5), (1.0, 0.95, 1),
                                              (0.01, 0.99, 459)])  # fmt: skip
def test_the_number_of_runs_that_show_a_difference(p, confidence, n):
    assert runs_needed(p, confidence) == n


@pytest.mark.parametrize("p", [0.9, 0.3, 0.05, 0.003])
def test_one_run_fewer_would_not_do(p):
    n = runs_needed(p)
    assert 1 - (1 - p) ** n >= 0.95 and (n == 1 or 1 - (1 - p) ** (n - 1) < 0.95)


@pytest.mark.parametrize("n", [1, 2, 7, 12, 299, 10_000])
def test_bound_and_number_of_runs_are_inverse(n):
    assert runs_needed(bound(n)) == n


@pytest.mark.parametrize("p, confidence", [(0, 0.95), (-1, 0.95), (1.1, 0.95), (0.5, 1.0), (0.5, 0.0)])
def test_what_is_no_probability_is_refused(p, confidence):
    with pytest.raises(ValueError, match="must lie within"):
        runs_needed(p, confidence)


def test_the_note_says_what_was_seen_what_it_bounds_and_what_more_would():
    assert power_note(12) == "0 of 12 differ: p < 22 % at 95 %; 299 runs would bound 1 %"
    assert power_note(299) == "0 of 299 differ: p < 1 % at 95 %"
    assert bounded(3) == "p < 63 % at 95 %"


def test_fewer_than_two_runs_show_nothing():
    assert power_note(1) == "1 run: nothing to compare; 299 runs would bound 1 %"
    assert power_note(0) == "0 runs: nothing to compare; 299 runs would bound 1 %"


def test_percentages_have_two_digits():
    assert [percent(p) for p in (0.776, 0.05, 0.00299, 1.0)] == ["78 %", "5 %", "0.3 %", "100 %"]
