"""The common clock, on simulated clocks with known offset and drift."""

import numpy as np
import pytest

from benchmarks.allreduce.clock import STRAIGHT, Sample, fit, level, quickest, unexplained


def exchanged(rng, at, offset, drift, there=2e-6, back=2e-6):
    """One exchange at true time `at` with a clock that shows at + offset + drift at; the ways take some time more."""

    def clock(t):
        return t + offset + drift * t

    there, back = there + rng.exponential(3e-6), back + rng.exponential(3e-6)
    return clock(at), at + there, clock(at + there + back)


def sampled(rng, times, offset, drift):
    return [quickest([exchanged(rng, at + 1e-5 * i, offset, drift) for i in range(12)]) for at in times]


@pytest.mark.parametrize("offset", [0.0, 3.0, -1e4])
@pytest.mark.parametrize("drift", [0.0, 1e-6, -5e-5])
def test_the_line_finds_offset_and_drift_within_its_own_bounds(offset, drift):
    rng = np.random.default_rng(1)
    line = fit(sampled(rng, 100 + np.linspace(0, 2, 9), offset, drift))
    own = drift / (1 + drift)  # per second of the drifting clock, against which lines are drawn
    assert abs(line.drift - own) <= line.drift_error < 1e-5
    for true in (100.0, 101.0, 130.0):
        shown = true + offset + drift * true
        assert abs(line.globally(shown) - true) <= line.error(shown) + 1e-11
        assert abs(line.local(line.globally(shown)) - shown) < 1e-9


def test_of_several_exchanges_the_quickest_decides():
    slow, quick = (0.0, 5.0, 8.0), (10.0, 11.0, 14.0)
    assert quickest([slow, quick]) == Sample(at=12.0, offset=1.0, bound=2.0)


def test_a_bad_sample_hardly_moves_the_line():
    good = [Sample(float(t), 1.0, 1e-6) for t in range(5)]
    line = fit([*good, Sample(2.5, 1.01, 2e-2)])
    assert line.offset(3.0) == pytest.approx(1.0, abs=1e-8)


def test_without_drift_every_sample_narrows_the_offset_down():
    samples = [Sample(1.0, 5.0, 2.0), Sample(2.0, 6.5, 1.0), Sample(3.0, 4.5, 1.5)]  # allow [5.5, 6]
    line = level(samples)
    assert (line.offset(9.0), line.error(9.0), line.drift) == (5.75, 0.25, 0.0)
    assert unexplained(line, Sample(4.0, 7.0, 0.5)) == 0.5


def test_one_sample_gives_no_drift():
    line = fit([Sample(5.0, 0.25, 1e-6)])
    assert (line.offset(5.0), line.offset(9.0), line.drift) == (0.25, 0.25, 0.0)


def test_a_straight_clock_is_explained_and_a_jump_is_not():
    rng = np.random.default_rng(2)
    line = fit(sampled(rng, np.linspace(0, 1, 5), 0.5, 2e-6))
    (later,) = sampled(rng, [3.0], 0.5, 2e-6)
    assert unexplained(line, later) == 0.0
    jumped = Sample(later.at, later.offset + 1e-4, later.bound)
    assert 0 < unexplained(line, jumped) < 1e-4


def test_rank_0_has_its_own_time():
    assert STRAIGHT.local(7.5) == STRAIGHT.globally(7.5) == 7.5 and STRAIGHT.error(7.5) == 0
