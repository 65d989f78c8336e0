"""Runs whose program is known, sums with work between them, and a calibration of two ranks without noise."""

from unittest import mock

import numpy as np
import pandas as pd

from analysis.predict.reading import calibration as calibrations
from analysis.predict.reading.skeleton import skeleton
from miniapps.trace import Tracer
from miniapps.trace.head import problem_hash
from miniapps.trace.schema import COLLECTIVE, OTHER, rank_file
from tests.analysis.synthetic import METHOD, Clock, attributes, write_result

STEPS, CALLS = 6, 3
OPTIONS = {
    key: {"effect": effect, "records": [], "of_ranks": False}
    for key, effect in (("grid.n", "size"), ("run.guarantee", "reduction"))
}
REDUCTION = {
    "ordering": "direct",
    "region": "allreduce.sum",
    "shape": [1],
    "dtype": "float64",
    "contributions": 8,
}


def write_program(
    out,
    n=128,
    ms=2.0,
    fixed=0.5,
    stolen=(),
    unseen=(),
    once=0.0,
    size=1,
    guarantee="none",
    calls=None,
    nbytes=0,
    **more,
):
    """A run of STEPS steps of CALLS sums: before each, `fixed` ms and `ms` ms for every 128 of n / size; after the last
    the fixed part. With `calls` so many sums, which the run says are iterations. `stolen` {(step, call): ms} are
    taken by others, before that sum. The work before a sum states `nbytes`. `unseen` {step: ms}
    are worked before the first event of a step. The first sum waits for `once` ms more."""
    out.mkdir(parents=True)
    problem = {"grid.n": n, "run.seed": 1}
    known = {"run_id": str(out), "config": {"grid": {"n": n}, "run": {"seed": 1}}, "options": OPTIONS,
             "problem_options": problem, "problem": problem_hash("coupled", problem),
             "reductions": {"sum": REDUCTION}, "method": METHOD | {"run.guarantee": guarantee}}  # fmt: skip
    for rank in range(size):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            given = attributes(rank, size, guarantee, "direct", **(known | more))
            tracer = Tracer(out / rank_file(rank), given, size=size)
            work, sums, whole = (
                tracer.name(*each) for each in (("work",), ("allreduce.sum", COLLECTIVE), ("step", OTHER))
            )
            for step in range(1, STEPS + 1):
                tracer.at(0, step)
                begun, lost = clock.now, 0.0
                clock.spend(dict(unseen).get(step, 0.0))
                begin = clock.now
                for call in range(calls or CALLS):
                    start = clock.now
                    taken = dict(stolen).get((step, call), 0.0)
                    clock.spend(fixed + ms * n / 128 / size + taken + once * (step == 1 and call == 0))
                    lost += taken
                    tracer.event(work, start, nbytes)
                    start = clock.now
                    clock.spend(0.1)
                    tracer.event(sums, start, 8)
                start = clock.now
                clock.spend(fixed)
                tracer.event(work, start)
                tracer.event(whole, begin)
                if calls and rank == 0:
                    tracer.decision("cg_iterations", calls, 0.5)
                for name in ("cpu_time", "cpu"):
                    tracer.usage(name, step, (clock.now - begun) / 1e9 - lost / 1e3)
            tracer.close()
    write_result(out)
    return out


def programs(place):
    """Runs of a deck and of half of it."""
    return [skeleton(write_program(place / str(n), n)) for n in (128, 64)]


def calibrated():
    """On two ranks, without noise: a sum takes 50 us more than its ranks do alone."""
    rows = [
        {"region": f"allreduce.direct:{where}", "seconds": s, "length": 1.0, "ranks": p, "flops": 0, "spread": np.nan,
         "messages": p - 1, "bytes": 8.0 * (p - 1), "additions": p - 1.0, "messages:4": 3, "bytes:4": 24,
         "additions:4": 3}
        for where, s, p in (("together", 6e-5, 2), ("alone", 1e-5, 1))
    ]  # fmt: skip
    reductions = {
        "direct": {"region": "allreduce.direct:together", "ordering": "direct", "accumulation": "working"}
    }
    return calibrations.Calibration(
        "cal", 2, pd.DataFrame(rows), np.ones((0, 2)), np.zeros(1), 1.0, reductions, {}, ("1" * 64,)
    )
