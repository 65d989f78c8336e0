"""Times of calls, and the interval of their median."""

import numpy as np
import pytest

from analysis import statistics
from kernels import timing
from kernels.timing import FEWEST, MOST, median_interval, timed


@pytest.mark.parametrize("n", range(1, 80))
def test_the_interval_is_that_of_the_reports(n):
    sample = np.random.default_rng(n).exponential(size=n)
    median, low, high = statistics.median_interval(sample)
    expected = (median, None, None) if np.isnan(low) else (median, low, high)
    assert median_interval(sample.tolist()) == pytest.approx(expected)


def test_six_are_the_fewest_with_an_interval():
    assert median_interval([5.0, 1.0, 2.0, 4.0, 3.0]) == (3.0, None, None)
    assert median_interval([5.0, 1.0, 2.0, 4.0, 3.0, 6.0]) == (3.5, 1.0, 6.0)
    with pytest.raises(ValueError, match="no times"):
        median_interval([])


@pytest.mark.parametrize(("seconds", "calls"), [(0.0, MOST), (0.05, FEWEST), (20.0, 2), (100.0, 1)])
def test_slow_calls_are_made_less_often(monkeypatch, seconds, calls):
    clock = 0.0
    results = iter(range(100))

    def call():
        nonlocal clock
        clock += seconds
        return next(results)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock)
    value, times = timed(call)
    assert value == 0 and len(times) == calls
    assert times == pytest.approx([seconds] * calls)
    assert next(results) == calls + 1  # the first is not among those timed
