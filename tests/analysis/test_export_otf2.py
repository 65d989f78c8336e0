"""OTF2: read back by the reader of the package otf2."""

import resource
from collections import Counter
from contextlib import contextmanager

import pytest

from analysis.export import otf2 as export
from tests.analysis.export_runs import (
    EVENTS,
    HOSTILE,
    IN_A_STEP,
    INCLUSIVE_NS,
    STEPS,
    events_of,
    hostile_run,
    overlapping_run,
    part_of,
    solver,
    solver_run,
)
from tests.analysis.synthetic import write_timed

otf2 = pytest.importorskip(
    "otf2", reason="the package otf2 is not installed: pip install otf2 (Linux, Python < 3.12)"
)


@contextmanager
def written(part, out):
    """The opened archive of `part`."""
    [anchor] = export.write(part, out)
    with otf2.reader.open(str(anchor)) as trace:
        yield trace


def regions(trace):
    """{location: [(name, start, end, attributes)]} of regions that were entered and left as calls are."""
    calls, still_open = {}, {}
    for location, event in trace.events:
        stack = still_open.setdefault(location.name, [])
        if isinstance(event, otf2.events.Enter):
            stack.append(
                (event.region, event.time, {key.name: value for key, value in event.attributes.items()})
            )
        elif isinstance(event, otf2.events.Leave):
            region, start, attributes = stack.pop()
            assert region is event.region
            calls.setdefault(location.name, []).append((region.name, start, event.time, attributes))
    assert not any(still_open.values())
    return calls


def test_every_region_is_entered_and_left_at_its_nanoseconds(tmp_path):
    part = part_of(solver_run(tmp_path / "run", size=3))
    with written(part, tmp_path / "out") as trace:
        calls = regions(trace)
    assert {name: len(own) for name, own in calls.items()} == {f"rank {rank}": EVENTS for rank in range(3)}
    for rank, own in events_of(part).groupby("rank"):
        expected = own[["name", "start", "end"]].values.tolist()
        assert sorted(list(region[:3]) for region in calls[f"rank {rank}"]) == sorted(expected)
    for name, start, end, attributes in calls["rank 1"]:
        assert end - start == INCLUSIVE_NS[name]
        assert attributes.keys() == {"repeat", "step", "bytes"} and attributes["step"] in range(STEPS)


def test_all_reduces_are_collectives_of_all_ranks_with_their_bytes(tmp_path):
    part = part_of(solver_run(tmp_path / "run", size=3, sizes={"allreduce.cg": 96, "allreduce.budget": 96}))
    with written(part, tmp_path / "out") as trace:
        events = list(trace.events)
        [world] = trace.definitions.comms
        assert [location.name for location in world.group.members] == ["rank 0", "rank 1", "rank 2"]
    ends = [event for _, event in events if isinstance(event, otf2.events.MpiCollectiveEnd)]
    begins = [event for _, event in events if isinstance(event, otf2.events.MpiCollectiveBegin)]
    assert len(ends) == len(begins) == 3 * STEPS * (IN_A_STEP["allreduce.cg"] + IN_A_STEP["allreduce.budget"])
    assert {(e.collective_op, e.communicator.name, e.size_sent, e.size_received) for e in ends} == {
        (otf2.CollectiveOp.ALLREDUCE, "MPI_COMM_WORLD", 96, 96)
    }
    of_one = [event for location, event in events if location.name == "rank 0"]
    for before, event, after in zip(of_one, of_one[1:], of_one[2:], strict=False):
        if isinstance(event, otf2.events.MpiCollectiveBegin):
            assert isinstance(before, otf2.events.Enter) and before.time == event.time
        if isinstance(event, otf2.events.MpiCollectiveEnd):
            assert isinstance(after, otf2.events.Leave) and after.time == event.time


def test_a_collective_that_is_cut_is_a_region_only(tmp_path):
    part = part_of(solver_run(tmp_path / "run"), begin=20_000, end=100_000)
    with written(part, tmp_path / "out") as trace:
        kinds = Counter(type(event).__name__ for _, event in trace.events)
    assert kinds["Enter"] == kinds["Leave"] == len(events_of(part))
    assert (
        kinds["MpiCollectiveBegin"]
        == kinds["MpiCollectiveEnd"]
        == (events_of(part)["collective"] >= 0).sum()
        == 2
    )


def test_definitions_say_where_and_when_and_what(tmp_path):
    run = solver_run(tmp_path / "run", started="2026-01-02T03:04:05+00:00")
    with written(part_of(run), tmp_path / "out") as trace:
        definitions = trace.definitions
        clock = definitions.clock_properties
        assert (clock.timer_resolution, clock.global_offset) == (10**9, 0)
        assert clock.realtime_timestamp == 1_767_323_045 * 10**9
        roles = {region.name: (region.region_role, region.paradigm) for region in definitions.regions}
        [location, _] = definitions.locations
        process = location.group
        assert (process.name, process.system_tree_parent.name) == ("rank 0", "n1")
        assert process.system_tree_parent.parent.parent is None
    assert roles["allreduce.cg"] == (otf2.RegionRole.COLL_ALL2ALL, otf2.Paradigm.MPI)
    assert roles["halo"] == (otf2.RegionRole.POINT2POINT, otf2.Paradigm.MPI)
    assert roles["solve"] == (otf2.RegionRole.CODE, otf2.Paradigm.USER)


def test_regions_that_overlap_are_on_a_location_of_their_own(tmp_path):
    with written(part_of(overlapping_run(tmp_path / "run")), tmp_path / "out") as trace:
        calls = regions(trace)
        assert len({location.group.name for location in trace.definitions.locations}) == 1
    named = {location: [region[0] for region in own] for location, own in calls.items()}
    assert named == {"rank 0": ["a", "inside"], "rank 0, overlapping regions 1": ["b"]}


def test_names_survive(tmp_path):
    with written(part_of(hostile_run(tmp_path / "run")), tmp_path / "out") as trace:
        assert [region[0] for region in regions(trace)["rank 1"]] == list(HOSTILE)


def test_an_archive_that_cannot_be_written_is_removed(tmp_path):
    part = part_of(write_timed(tmp_path / "run", solver, size=1, steps=100))
    (tmp_path / "there").mkdir()
    with pytest.raises(FileExistsError):
        export.write(part, tmp_path / "there")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(OSError, match="OTF2 says"):
            export.write(part, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not (tmp_path / "out").exists()
