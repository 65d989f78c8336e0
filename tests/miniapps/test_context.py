"""Reducers of applications: their descriptions and events."""

import logging

import numpy as np
import pytest
from mpi4py import MPI

from miniapps.runner.context import Context
from miniapps.runner.options import RunOptions
from miniapps.trace import Tracer, read


@pytest.fixture
def context(tmp_path):
    with Tracer(tmp_path / "0.h5", {"rank": 0}) as tracer:
        ctx = Context(MPI.COMM_SELF, None, RunOptions(), tracer, logging.getLogger(), tmp_path)
        ctx.begin_repeat(0)
        yield ctx


def written(ctx):
    """The trace, once the repeat is over."""
    ctx.end_repeat()
    ctx.tracer.close(complete=True)
    return read(ctx.out / "0.h5")


def test_contributions_that_are_added_one_by_one_are_one_call_and_one_event(context):
    reducer = context.reducer("total", (2,), blocks=[0, 1])
    reducer.add(1, np.ones(2))
    reducer.add(0, np.ones(2))
    assert reducer.finish().tolist() == [2, 2]
    assert reducer(np.ones((2, 2))).tolist() == [2, 2]
    trace = written(context)
    events = trace.tables["events"]
    assert (events["name"] == trace.names.index("allreduce.total")).sum() == len(events["name"]) == 2
    assert trace.attributes["reductions"]["total"]["calls"] == 2


def test_the_parts_of_a_reduce_scatter_are_stated(context):
    more = {"collective": "reduce-scatter", "bounds": (0, 3), "by": ("direct", "exact")}
    assert context.reducer("part", (3,), **more)(np.ones((1, 3))).tolist() == [1, 1, 1]
    stated = written(context).attributes["reductions"]["part"]
    assert (stated["bounds"], stated["decided"], stated["region"]) == (
        [0, 3],
        "application",
        "reduce-scatter.part",
    )
