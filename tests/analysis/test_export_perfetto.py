"""Trace Event Format: read back with decimal arithmetic."""

import gzip
import json
from collections import Counter
from decimal import Decimal

import pytest

from analysis.export import perfetto
from analysis.export.marks import Mark
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
    solver_run,
    traced_run,
)
from tests.analysis.synthetic import region


def read(path):
    """{phase: events} of a written file, numbers as Decimal."""
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    document = json.loads(data, parse_float=Decimal)
    assert document["displayTimeUnit"] == "ns"
    phases = {}
    for event in document["traceEvents"]:
        phases.setdefault(event["ph"], []).append(event)
    return phases


def test_every_event_is_there_with_its_nanoseconds(tmp_path):
    part = part_of(solver_run(tmp_path / "run", size=3))
    assert perfetto.write(part, tmp_path / "out.json") == [tmp_path / "out.json"]
    events = read(tmp_path / "out.json")["X"]
    assert Counter(event["name"] for event in events) == {
        name: 3 * STEPS * count for name, count in IN_A_STEP.items()
    }
    assert all(event["dur"] * 1000 == INCLUSIVE_NS[event["name"]] for event in events)
    assert sorted(event["ts"] * 1000 for event in events) == sorted(events_of(part)["start"])
    assert Counter(event["args"]["step"] for event in events) == dict.fromkeys(
        range(STEPS), 3 * EVENTS / STEPS
    )


def test_a_nanosecond_is_not_lost_after_years(tmp_path):
    def act(tracer, clock):
        tracer.event(tracer.name("begin"), clock.now)
        clock.now += 3 * 10**17 + 1
        begin = clock.now
        clock.now += 1
        tracer.event(tracer.name("late"), begin)

    perfetto.write(part_of(traced_run(tmp_path / "run", act)), tmp_path / "out.json")
    late = read(tmp_path / "out.json")["X"][1]
    assert (late["ts"] * 1000, late["dur"] * 1000) == (3 * 10**17 + 1, 1)


def test_a_process_per_node_and_a_thread_per_rank_with_names(tmp_path):
    run = traced_run(
        tmp_path / "run", *[lambda tracer, clock: tracer.event(tracer.name("work"), clock.now)] * 2
    )
    part = part_of(run)
    part.attributes[1]["environment"] = {"node": "n2"}
    perfetto.write(part, tmp_path / "out.json")
    phases = read(tmp_path / "out.json")
    names = {
        (e["name"], e["pid"], e.get("tid")): e["args"] for e in phases["M"] if e["name"].endswith("_name")
    }
    assert [name["name"] for name in names.values()] == [
        "coupled none/ring, n1", "coupled none/ring, n2", "rank 0", "rank 1",
    ]  # fmt: skip
    for event, rank in zip(phases["X"], (0, 1), strict=True):
        assert names["thread_name", event["pid"], event["tid"]] == {"name": f"rank {rank}"}
    assert phases["X"][0]["pid"] != phases["X"][1]["pid"]


def test_a_flow_goes_through_the_ranks_of_a_collective_in_the_order_of_arrival(tmp_path):
    def arriving(after):
        def act(tracer, clock):
            clock.spend(after)
            begin = clock.now
            clock.spend(10 - after)
            tracer.event(region(tracer, "allreduce.norm"), begin)

        return act

    perfetto.write(
        part_of(traced_run(tmp_path / "run", arriving(3), arriving(1), arriving(2))), tmp_path / "out.json"
    )
    phases = read(tmp_path / "out.json")
    flow = [(e["ts"], phase, e["tid"], e["id"], e["bp"]) for phase in "stf" for e in phases[phase]]
    assert [step[1:] for step in sorted(flow)] == [("s", 2, 0, "e"), ("t", 3, 0, "e"), ("f", 1, 0, "e")]
    for step in flow:  # each is at the start of a region of its thread
        assert any(e["tid"] == step[2] and e["ts"] == step[0] for e in phases["X"])


def test_each_collective_has_one_flow_with_a_step_on_each_rank(tmp_path):
    perfetto.write(part_of(solver_run(tmp_path / "run", size=3)), tmp_path / "out.json")
    phases = read(tmp_path / "out.json")
    per_flow = Counter(event["id"] for phase in "stf" for event in phases[phase])
    assert set(per_flow.values()) == {3} and len(per_flow) == 3 * STEPS
    assert {len(phases[phase]) for phase in "stf"} == {3 * STEPS}
    perfetto.write(part_of(tmp_path / "run", ranks=[range(1)]), tmp_path / "one.json")
    assert set(read(tmp_path / "one.json")) == {"M", "X"}  # one rank waits for nobody


def test_names_survive(tmp_path):
    perfetto.write(part_of(hostile_run(tmp_path / "run")), tmp_path / "out.json.gz")
    assert Counter(e["name"] for e in read(tmp_path / "out.json.gz")["X"]) == dict.fromkeys(HOSTILE, 2)


def test_regions_of_a_thread_nest_even_where_those_of_a_rank_do_not(tmp_path):
    perfetto.write(part_of(overlapping_run(tmp_path / "run")), tmp_path / "out.json")
    phases = read(tmp_path / "out.json")
    threads = {e["name"]: e["tid"] for e in phases["X"]}
    assert threads["a"] == threads["inside"] != threads["b"]
    assert {e["args"].get("name") for e in phases["M"]} >= {"rank 0", "rank 0, overlapping regions 1"}


def test_what_is_cut_says_so(tmp_path):
    perfetto.write(part_of(solver_run(tmp_path / "run"), begin=1_000, end=40_000), tmp_path / "out.json")
    events = read(tmp_path / "out.json")["X"]
    cut = {event["name"] for event in events if event["args"].get("cut")}
    assert cut == {"step", "solve", "halo"}
    assert min(e["ts"] for e in events) == 1 and max(e["ts"] + e["dur"] for e in events) == 40


def test_a_mark_is_an_instant_that_is_seen_on_all_threads(tmp_path):
    mark = Mark(1, 12_345, 'first divergence: v"', {"step": 3})
    perfetto.write(part_of(solver_run(tmp_path / "run")), tmp_path / "out.json", mark)
    [event] = read(tmp_path / "out.json")["i"]
    assert (event["name"], event["ts"], event["tid"], event["s"]) == (mark.name, Decimal("12.345"), 2, "g")
    assert event["args"] == {"step": 3}


def test_nothing_is_written_over_and_nothing_half_written_is_left(tmp_path, monkeypatch):
    part = part_of(solver_run(tmp_path / "run"))
    out = tmp_path / "out.json"
    out.write_text("mine")
    with pytest.raises(FileExistsError):
        perfetto.write(part, out)
    assert out.read_text() == "mine"

    def full(part, mark):
        yield "{}"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(perfetto, "event_lines", full)
    with pytest.raises(OSError, match="No space"):
        perfetto.write(part, tmp_path / "new.json")
    assert not (tmp_path / "new.json").exists()
