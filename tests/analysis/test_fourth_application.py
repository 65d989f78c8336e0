"""An application that the analysis has never heard of: what it states of its options, regions and reductions is enough
to group, judge and time its runs."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from mpi4py import MPI

from analysis.divergence.cause import cause
from analysis.divergence.classes import METHOD
from analysis.divergence.compare import compare
from analysis.groups import conditions, grouped
from analysis.load.frames import load
from analysis.load.timeline import partners, timeline
from analysis.regions import cost_summary, costs
from analysis.verdict import HOLDS, judge
from analysis.waiting.communication import collectives
from analysis.waiting.waits import waits
from miniapps.runner import context
from miniapps.runner.config import option, section
from miniapps.runner.main import App, Outcome, main
from miniapps.trace import fingerprint
from miniapps.trace.schema import EXCHANGE, OTHER


@dataclass
class Garden:
    beds: int = option(4, help="beds", minimum=1, maximum=64, effect="size")
    rows: int = option(1, help="numbers of a bed", minimum=1, maximum=64)
    timed: bool = option(False, help="dig with the fastest tool", role="method")
    walled: bool = option(False, help="one bed at a time", role="method", effect="guarantee")
    seeds: str = option("", help="packet of the seeds", role="control", effect="source")
    notes: bool = option(False, help="count weeds", role="control", records=("values:weeds",))


TOOLS = {"spade": lambda total: total / 7.0, "fork": lambda total: total / 7.5}


def fastest():
    """(tool, seconds): tests say which."""
    raise NotImplementedError


@dataclass
class Config:
    garden: Garden = section(Garden)


def run(ctx):
    garden, tracer = ctx.config.garden, ctx.tracer
    total = ctx.reducer("harvest", (garden.rows,))
    day, hedge, dig = tracer.name("day", OTHER), tracer.name("hedge", EXCHANGE), tracer.name("dig")
    state = np.arange(garden.beds * garden.rows, dtype=float).reshape(garden.beds, garden.rows) + ctx.seed
    tracer.partners("hedge", [0])
    for step in range(3):
        ctx.begin_step(step, 3)
        start = tracer.clock()
        tracer.event(hedge, start, 8)
        tool = ctx.choose("tool", fastest) if garden.timed else "spade"
        state += TOOLS[tool](total(state))
        tracer.event(dig, tracer.clock(), 0, state.size)
        tracer.fingerprints("bed", range(garden.beds), state)
        if garden.notes:
            tracer.value("weeds", step)
        tracer.event(day, start)
    return Outcome(fingerprint=fingerprint(state).hex())


APP = App("garden", Config, "Beds, dug and harvested.", run, package="tests.analysis")


@pytest.fixture
def launch(tmp_path):
    def launched(name, *argv):
        out = ["--out", str(tmp_path / name), "--no-progress", "--log-level", "error"]
        assert main(APP, [*out, *argv], MPI.COMM_SELF) == 0
        return tmp_path / name

    return launched


def test_its_groups_are_labelled_by_what_ran_and_judged(launch, tmp_path):
    launch("free")
    launch("scalars", "--guarantee", "layout")
    alike = "--guarantee layout --shuffle-blocks 3 --allreduce direct --accumulate exact"
    launch("again", *alike.split(), "--set", "garden.notes=true", "--set", "garden.seeds=elsewhere")
    launch("vectors", "--guarantee", "layout", "--set", "garden.rows=32")
    frames = load([tmp_path])
    labels = grouped(frames.runs).set_index("run")["group"].to_dict()
    assert labels == {
        "free": "garden none/library (rows=1)",
        "scalars": "garden layout/direct in exact (rows=1)",
        "again": "garden layout/direct in exact (rows=1)",
        "vectors": "garden layout/direct in exact (rows=32)",
    }
    judged = {group.label: group for group in judge(frames)}["garden layout/direct in exact (rows=1)"]
    assert (judged.verdict, judged.runs, len(judged.cells)) == (HOLDS, 2, 1)


def test_what_its_guarantee_decides_does_not_keep_times_from_being_compared(launch, tmp_path):
    launch("free")
    launch("kept", "--guarantee", "layout", "--set", "garden.walled=true")
    groups = cost_summary(costs(load([tmp_path])))["group"]
    assert groups.tolist() == ["garden none/library", "garden layout/direct in exact"]


def test_its_regions_are_timed_by_their_kinds(launch, tmp_path):
    place = launch("a")
    table = collectives(waits(timeline(place, 0), 1, partners(place)))
    assert dict(zip(table["name"], table["calls"], strict=True)) == {"allreduce.harvest": 3, "hedge": 3}
    assert load([place]).events.groupby("name", observed=True)["flops"].sum()["dig"] == 12


def test_its_cpu_time_is_recorded_by_step_and_makes_no_difference(launch, tmp_path, monkeypatch):
    for name, used in (("a", 0.25), ("b", 0.5)):
        clock = itertools.count(1.0, used)
        monkeypatch.setattr(context.time, "process_time", lambda clock=clock: next(clock))
        threads = itertools.count(1.0, used / 2)
        monkeypatch.setattr(context.time, "thread_time", lambda clock=threads: next(clock))
        launch(name)
    frames = load([tmp_path])
    usage = frames.usage[["run", "rank", "step", "name", "value"]].astype({"run": str, "name": str})
    rows = [
        (run, 0, step, name, used * share)
        for run, used in (("a", 0.25), ("b", 0.5))
        for step in range(3)
        for name, share in (("cpu_time", 1.0), ("cpu", 0.5))  # of the process, of its first thread
    ]
    of_steps = usage[usage["name"] != "chain_cpu"]  # the head at the end is no step
    assert of_steps.to_records(index=False).tolist() == rows
    divergence = compare(frames, ("a", 0), ("b", 0))
    assert divergence.equal and (divergence.only_a, divergence.only_b) == (0, 0)


@pytest.fixture
def tools(monkeypatch):
    """The tools that are fastest from now on, one a step."""

    def set_to(*names):
        left = iter(names)
        monkeypatch.setitem(globals(), "fastest", lambda: (next(left), 0.25))

    return set_to


TIMED = ("--set", "garden.timed=true")


def test_what_it_decides_from_a_clock_is_recorded_and_replayed(launch, tools, tmp_path):
    tools("spade", "fork", "fork")
    recorded = launch("a", *TIMED)
    tools()
    launch("b", *TIMED, "--replay", str(recorded), "--guarantee", "run", "--allreduce", "ring")
    tools("spade", "fork", "spade")
    launch("c", *TIMED)
    frames = load([tmp_path])
    choices = frames.choices[["run", "step", "name", "block", "choice", "score"]].astype({"run": "str"})
    assert choices[choices["run"] == "a"].to_numpy().tolist() == [
        ["a", step, "tool", -1, tool, 0.25] for step, tool in enumerate(("spade", "fork", "fork"))
    ]
    replayed = choices[choices["run"] == "b"]
    assert replayed["choice"].tolist() == ["spade", "fork", "fork"] and replayed["score"].isna().all()
    assert compare(frames, ("a", 0), ("b", 0)).equal
    assert [group.label.split(" (")[0] for group in judge(frames)] == [
        "garden none/library",
        "garden run/ring",
    ]
    differing = compare(frames, ("a", 0), ("c", 0))
    judged = cause(frames, differing)
    assert differing.first.step == 2
    assert (judged.kind, judged.name) == (METHOD, "tool at step 2")
    assert "tool at step 2 is fork in a:0, spade in c:0" in judged.why


def test_choices_that_cannot_be_replayed_or_promised_are_refused(launch, tools, tmp_path, capsys):
    tools("spade", "spade", "spade")
    recorded = str(launch("a", *TIMED))
    for name, argv, message in (
        ("b", ["--replay", recorded, "--repeats", "2"], f"{recorded}: no choice 'tool' in repeat 1, step 0;"),
        ("c", ["--guarantee", "run"], "--guarantee run: a clock decides 'tool'"),
        (
            "d",
            ["--replay", recorded, "--set", "garden.rows=2"],
            "it ran with --set garden.rows=1, this run has --set",
        ),
    ):
        assert main(APP, ["--out", str(tmp_path / name), *TIMED, *argv], MPI.COMM_SELF) == 2
        assert message in capsys.readouterr().err


def test_what_it_says_of_its_size_and_sources_decides_which_times_are_compared(launch, tmp_path):
    launch("a")
    launch("b", "--set", "garden.beds=8", "--set", "garden.seeds=elsewhere")
    launch("c", "--check-ranks")
    runs = load([tmp_path]).runs
    assert len(set(conditions(runs))) == 3
    assert len(set(conditions(runs, sized=False))) == 2
