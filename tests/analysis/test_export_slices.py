"""What is exported: slices of a run, collectives matched over ranks, regions that nest."""

import numpy as np
import pytest

from analysis.export.slices import NothingToExport, parents
from analysis.page.text import spans
from miniapps.trace import node
from tests.analysis.export_runs import (
    EVENTS,
    IN_A_STEP,
    INCLUSIVE_NS,
    STEP_NS,
    STEPS,
    events_of,
    overlapping_run,
    part_of,
    solver_run,
    traced_run,
)
from tests.analysis.synthetic import MS, region


def test_a_run_packed_into_files_of_nodes_is_the_same(tmp_path):
    run = solver_run(tmp_path / "run", size=3)
    expected = part_of(run)
    node.pack(sorted(run.glob("*.h5")), run / "node-00000.h5")
    part = part_of(run)
    assert part.attributes == expected.attributes
    assert [own["rank"] for own in part.attributes.values()] == [0, 1, 2]
    assert events_of(part).equals(events_of(expected))


def test_every_collective_is_found_on_every_rank(tmp_path):
    part = part_of(solver_run(tmp_path / "run", size=3))
    collectives = events_of(part)[events_of(part)["collective"] >= 0]
    assert len(events_of(part)) == 3 * EVENTS
    calls = IN_A_STEP["allreduce.cg"] + IN_A_STEP["allreduce.budget"]
    assert collectives["collective"].nunique() == STEPS * calls
    for _, same in collectives.groupby("collective"):
        assert sorted(same["rank"]) == [0, 1, 2]
        assert len(set(zip(same["step"], same["name"], same["call"], strict=True))) == 1
    order = collectives.loc[collectives["rank"] == 0, "collective"].tolist()
    assert order == sorted(order)


def test_a_collective_that_a_rank_did_not_reach_is_none(tmp_path):
    def act(calls):
        def record(tracer, clock):
            for _ in range(calls):
                begin = clock.now
                clock.spend(1)
                tracer.event(region(tracer, "allreduce.norm"), begin)

        return record

    part = part_of(traced_run(tmp_path / "run", act(3), act(2)))
    assert events_of(part)["collective"].tolist() == [0, 1, -1, 0, 1]


def test_a_collective_that_overlaps_other_regions_on_one_rank_is_one_all_the_same(tmp_path):
    def act(overlap):
        def record(tracer, clock):
            work = clock.now
            clock.spend(1)
            begin = clock.now
            clock.spend(1)
            if overlap:
                tracer.event(tracer.name("work"), work)
            clock.spend(1)
            tracer.event(region(tracer, "allreduce.norm"), begin)
            if not overlap:
                tracer.event(tracer.name("work"), work)

        return record

    events = events_of(part_of(traced_run(tmp_path / "run", act(True), act(False))))
    assert events["lane"].tolist() == [0, 1, 0, 0]
    assert events.loc[events["name"] == "allreduce.norm", "collective"].tolist() == [0, 0]
    assert sorted(events["collective"]) == [-1, -1, 0, 0]


def test_regions_are_cut_at_the_borders_of_a_time(tmp_path):
    run = solver_run(tmp_path / "run")
    # From the middle of step 0's `step` to the middle of step 1's.
    begin, end = 1_000, STEP_NS + 2_000
    part = part_of(run, begin=begin, end=end)
    assert (part.begin, part.end) == (begin, end)
    steps = events_of(part)[(events_of(part)["name"] == "step") & (events_of(part)["rank"] == 0)]
    assert steps[["start", "end", "cut"]].values.tolist() == [
        [begin, INCLUSIVE_NS["step"], True], [STEP_NS, end, True],
    ]  # fmt: skip
    whole = events_of(part)[~events_of(part)["cut"]]
    assert set(whole["name"]) == {"halo", "allreduce.cg", "allreduce.budget"}
    assert (whole["end"] - whole["start"]).tolist() == [INCLUSIVE_NS[name] for name in whole["name"]]
    assert set(whole["step"]) == {0}


def test_a_cut_collective_counts_for_none_and_the_others_keep_their_calls(tmp_path):
    run = solver_run(tmp_path / "run")
    first_end = 10_001 + 20_003  # the first `halo` and `allreduce.cg` of step 0
    part = part_of(run, begin=first_end - 1, end=STEP_NS)
    sums = events_of(part)[events_of(part)["name"] == "allreduce.cg"]
    assert sums["call"].tolist() == [0, 1, 0, 1]
    assert sums["collective"].tolist() == [-1, 0, -1, 0]


def test_ranks_steps_and_repeats_are_chosen_and_times_stay_those_of_the_run(tmp_path):
    def later(tracer, clock):
        clock.spend(7)
        begin = clock.now
        clock.spend(1)
        tracer.event(tracer.name("work"), begin)

    def at_once(tracer, clock):
        begin = clock.now
        clock.spend(1)
        tracer.event(tracer.name("work"), begin)

    part = part_of(traced_run(tmp_path / "late", at_once, later), ranks=[range(1, 2)])
    assert events_of(part)["start"].tolist() == [7 * MS]
    run = solver_run(tmp_path / "run", size=4)
    part = part_of(run, ranks=[range(0, 1), range(2, 4)], steps=[range(1, 2)], repeat=0)
    assert list(part.attributes) == [0, 2, 3]
    assert set(events_of(part)["rank"]) == {0, 2, 3} and set(events_of(part)["step"]) == {1}
    assert len(events_of(part)) == 3 * EVENTS / STEPS
    assert (events_of(part).loc[events_of(part)["name"] == "allreduce.budget", "collective"] >= 0).all()


@pytest.mark.parametrize("asked, words", [
    ({"ranks": [range(1, 5)]}, "no rank 2; it has ranks 0-1"),
    ({"steps": [range(3, 10**12)]}, "no step 3; it has steps 0-2"),
    ({"repeat": 4}, "no repeat 4; it has repeats 0"),
    ({"begin": 10**15}, r"none of its events .* and 0.000\d* s"),
])  # fmt: skip
def test_what_does_not_exist_is_said_with_what_does(tmp_path, asked, words):
    with pytest.raises(NothingToExport, match=words):
        part_of(solver_run(tmp_path / "run"), **asked)


def test_a_run_without_events_says_so(tmp_path):
    run = traced_run(tmp_path / "run", lambda tracer, clock: tracer.value("energy", 1.0))
    with pytest.raises(NothingToExport, match="no events, as with --trace off"):
        part_of(run)


def test_regions_that_overlap_without_nesting_are_in_lanes(tmp_path):
    events = events_of(part_of(overlapping_run(tmp_path / "run")))
    assert events[["name", "lane", "depth"]].values.tolist() == [["a", 0, 0], ["b", 1, 0], ["inside", 0, 0]]
    assert ((events["end"] - events["start"]) / MS).tolist() == [5, 5, 1]


def test_regions_that_nest_are_in_one_lane_whatever_ties_and_empty_ones_there_are(tmp_path):
    def act(tracer, clock):
        begin = clock.now
        tracer.event(tracer.name("empty"), begin)
        clock.spend(1)
        tracer.event(tracer.name("first"), begin)
        tracer.event(tracer.name("empty"), clock.now)
        tracer.event(tracer.name("outer"), begin)
        tracer.event(tracer.name("empty"), clock.now)
        clock.spend(1)
        tracer.event(tracer.name("around all"), begin)

    events = events_of(part_of(traced_run(tmp_path / "run", act)))
    assert set(events["lane"]) == {0}
    assert events["name"].tolist()[0] == "around all"
    open_ends = []
    for event in events.itertuples():  # entered and left in this order, none ends before what is inside of it
        while len(open_ends) > event.depth:
            open_ends.pop()
        assert len(open_ends) == event.depth
        assert all(end >= event.end for end in open_ends)
        open_ends.append(event.end)


def test_the_region_around_each_is_the_last_one_further_out():
    assert parents(np.array([0, 1, 2, 2, 1, 0, 1], np.int32)).tolist() == [-1, 0, 1, 1, 0, -1, 5]
    assert parents(np.array([], np.int32)).tolist() == []


def test_spans_name_what_is_there():
    assert spans([7, 0, 1, 2, 3]) == "0-3, 7"
    assert spans([]) == ""
