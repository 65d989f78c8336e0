"""Assigning blocks by the time that they take, and reading this time from regions."""

import itertools

import numpy as np
import pytest

from miniapps.errors import UsageError
from miniapps.layout.owners import balanced, contiguous_owner, owner_of
from miniapps.runner.shares import parsed, useful
from miniapps.trace import Tracer
from miniapps.trace.schema import COLLECTIVE, COMPUTE, EXCHANGE, OTHER


@pytest.mark.parametrize("seconds", [[1.0, 2.0, 3.5], [1.0, 1.0, 1.0], [0.1, 10.0, 1.0]])
@pytest.mark.parametrize("count", [3, 7, 12])
def test_no_other_dealing_is_done_earlier(count, seconds):
    counts = balanced(count, seconds)
    last = max(n * s for n, s in zip(counts, seconds, strict=True))
    others = itertools.product(range(1, count), repeat=len(seconds))
    best = min(
        max(n * s for n, s in zip(other, seconds, strict=True)) for other in others if sum(other) == count
    )
    assert sum(counts) == count and min(counts) >= 1 and last == best


def test_equal_ranks_own_what_they_own_without_shares():
    assert owner_of(balanced(17, [2.0] * 5)).tolist() == contiguous_owner(17, 5).tolist()


@pytest.mark.parametrize("seconds", [[1.0, 0.0], [1.0, np.nan], [1.0, np.inf], [1.0] * 5])
def test_times_that_deal_nothing_are_refused(seconds):
    with pytest.raises(ValueError, match="4 blocks cannot be assigned"):
        balanced(4, seconds)


@pytest.mark.parametrize(
    "text", ["", "3", "3,4", "8,0", "4,4,0", "-1,9", "four,4", "4,4,", "٤,4", "9" * 30 + ",1"]
)
def test_shares_that_no_run_chose_are_refused(text):
    with pytest.raises(UsageError, match="do not assign 8 blocks to 2 ranks"):
        parsed(text, 8, 2)
    assert parsed("5,3", 8, 2) == [5, 3]


def test_useful_time_leaves_out_what_a_rank_may_wait_for(tmp_path, monkeypatch):
    now = [0]
    monkeypatch.setattr("miniapps.trace.writer.time.perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(Tracer, "clock", staticmethod(lambda: now[0]))
    with Tracer(tmp_path / "trace.h5", {"rank": 0}) as tracer:
        names = {kind: tracer.name(kind, kind) for kind in (COMPUTE, COLLECTIVE, EXCHANGE, OTHER)}
        tracer.at(0, 1)
        record(tracer, now, names[COMPUTE], 0, 90)  # of the step before
        tracer.at(0, 2)
        record(tracer, now, names[EXCHANGE], 110, 130)
        record(tracer, now, names[COMPUTE], 100, 200)
        record(tracer, now, names[COLLECTIVE], 200, 300)
        record(tracer, now, names[COMPUTE], 300, 340)
        record(tracer, now, names[COLLECTIVE], 320, 400)  # under way while something is computed
        record(tracer, now, names[OTHER], 100, 400)
        assert useful(tracer) == pytest.approx(120e-9)


def record(tracer, now, name, start, end):
    now[0] = end
    tracer.event(name, start)
