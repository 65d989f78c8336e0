"""Runs for the exports, with known times: two ranks of a solver, with values that are hard to write."""

from unittest import mock

import pandas as pd

from analysis.export.slices import Selection, slice_of
from miniapps.trace import Tracer
from miniapps.trace.schema import rank_file
from tests.analysis.synthetic import MS, Clock, attributes, write_timed

HOSTILE = (
    'a "quoted" name', "two\nlines\tand a tab", "größe ∑ 数", "C:\\back\\slash", "</script><b>&amp;", "a->b",
    "x" * 10_000,
)  # fmt: skip
STEPS = 3
# By construction: name, ns of its own on each rank, how many in a step; `step` holds all but `allreduce.budget`.
OWN_NS = {"halo": 10_001, "allreduce.cg": 20_003, "solve": 100_007, "step": 50_009, "allreduce.budget": 5_011}
IN_A_STEP = {"halo": 2, "allreduce.cg": 2, "solve": 1, "step": 1, "allreduce.budget": 1}
INCLUSIVE_NS = OWN_NS | {"solve": 100_007 + 2 * 30_004, "step": 50_009 + 100_007 + 2 * 30_004}
STEP_NS = INCLUSIVE_NS["step"] + INCLUSIVE_NS["allreduce.budget"]
EVENTS = STEPS * sum(IN_A_STEP.values())  # of one rank


def solver(rank, step):
    """The regions of one step, the same on all ranks."""

    def region(name, *inner):
        return name, OWN_NS[name] / MS, list(inner)

    iteration = (region("halo"), region("allreduce.cg"))
    return [region("step", region("solve", *iteration, *iteration)), region("allreduce.budget")]


def solver_run(out, size=2, **more):
    """A run of `solver` of STEPS steps on `size` ranks."""
    return write_timed(out, solver, size=size, steps=STEPS, **more)


def hostile_run(out, size=2):
    """A run with an event of each of HOSTILE, 1,001 ns long, inside one another's neighbourhood."""
    return write_timed(out, lambda rank, step: [(name, 1_001 / MS, []) for name in HOSTILE], size=size)


def traced_run(out, *ranks, **more):
    """A run whose ranks record what the functions `ranks` do: each is given its tracer and a Clock."""
    out.mkdir(parents=True)
    for rank, act in enumerate(ranks):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            given = attributes(rank, len(ranks), "none", "ring", **{"run_id": str(out), **more})
            tracer = Tracer(out / rank_file(rank), given, size=len(ranks))
            act(tracer, clock)
            tracer.close()
    return out


def overlapping_run(out):
    """One rank: `a` from 0 to 5 ms, `b` from 3 to 8 ms, and `inside` of b from 6 to 7 ms."""

    def act(tracer, clock):
        a = clock.now
        clock.spend(3)
        b = clock.now
        clock.spend(2)
        tracer.event(tracer.name("a"), a)
        clock.spend(1)
        inside = clock.now
        clock.spend(1)
        tracer.event(tracer.name("inside"), inside)
        clock.spend(1)
        tracer.event(tracer.name("b"), b)

    return traced_run(out, act)


def part_of(run, **asked):
    """The slice of `run` that Selection(**asked) names."""
    return slice_of(run, Selection(**asked))


def events_of(part):
    """The events of all ranks of a slice."""
    return pd.concat([own for _, own in part.ranks()], ignore_index=True)
