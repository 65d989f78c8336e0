"""Every event of a run, on one clock."""

from unittest import mock

import pytest

from analysis.load.timeline import TIMELINE, partners, timeline
from miniapps.trace import TraceError, Tracer
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import MS, Clock, attributes, write_timed


def nested(rank, step):
    return [("step", 1.0, [("halo", 2.0 + rank, []), ("rhs", 3.0, [("inner", 0.5, [])])])]


def test_all_events_of_all_ranks_with_their_depth(tmp_path):
    events = timeline(write_timed(tmp_path / "run", nested, size=2, steps=3))
    assert list(events.columns) == list(TIMELINE)
    assert len(events) == 2 * 3 * 4
    of_one = events[(events["rank"] == 1) & (events["step"] == 0)]
    assert of_one["name"].tolist() == ["step", "halo", "rhs", "inner"]
    assert of_one["depth"].tolist() == [0, 1, 1, 2]
    assert of_one["index"].tolist() == [3, 0, 2, 1]  # in the order in which they ended
    assert ((of_one["end"] - of_one["start"]) / MS).tolist() == [7.5, 3.0, 3.5, 0.5]


def test_times_are_of_the_clock_of_rank_0_and_begin_at_0(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for rank, offset_ms in enumerate((0, 5)):
        clock = Clock()
        clock.spend(offset_ms + rank)  # rank 1 begins 1 ms later than rank 0, by a clock that is 5 ms ahead
        with mock.patch("time.perf_counter_ns", clock):
            given = attributes(rank, 2, "none", "ring", run_id="r", clock_offset_ns=1.0 * offset_ms * MS)
            with Tracer(run / rank_file(rank), given, size=2) as tracer:
                begin = clock.now
                clock.spend(2)
                tracer.event(tracer.name("work"), begin)
    events = timeline(run)
    assert (events["start"] / MS).tolist() == [0, 1]
    assert (events["end"] / MS).tolist() == [2, 3]


def test_of_two_that_begin_and_end_together_the_outer_is_the_one_recorded_later(tmp_path):
    run = write_timed(tmp_path / "run", lambda rank, step: [("outer", 0.0, [("inner", 1.0, [])])], size=1)
    events = timeline(run)
    assert events["name"].tolist() == ["outer", "inner"] and events["depth"].tolist() == [0, 1]


def test_ranks_steps_and_repeats_are_chosen(tmp_path):
    run = write_timed(tmp_path / "run", nested, size=3, steps=3)
    events = timeline(run, repeat=0, steps=[1], ranks=[0, 2])
    assert set(events["rank"]) == {0, 2}
    assert set(events["step"]) == {1}
    with pytest.raises(TraceError, match=r"none of the ranks \[7\]"):
        timeline(run, ranks=[7])


def test_partners_by_region_and_rank(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    for rank in range(2):
        with Tracer(run / rank_file(rank), attributes(rank, 2, "none", "ring", run_id="r"), size=2) as tracer:
            tracer.partners("halo", [1 - rank])
            tracer.partners("halo", [1 - rank])
    assert partners(run) == {"halo": {0: [1], 1: [0]}}


def test_a_clock_drifts_by_so_many_nanoseconds_in_a_second(tmp_path):
    run = write_timed(
        tmp_path / "run", lambda rank, step: [("work", 1000.0, [])], size=1, steps=2, clock_drift=5.0 * MS
    )
    assert (timeline(run)["end"] / MS).tolist() == [995.0, 1990.0]
