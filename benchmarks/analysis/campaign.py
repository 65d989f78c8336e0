"""Campaigns for the benchmark of the analysis: traces of an application that does nothing, by the real trace writer."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from miniapps.trace import Tracer, trace_files
from miniapps.trace.schema import rank_file
from miniapps.untrusted.result import RESULT, written
from miniapps.untrusted.sealed import sealed

REGIONS = {"step": "other", "closure": "compute", "halo": "exchange", "rhs": "compute", "poisson": "compute",
           "allreduce.cg": "collective", "record": "other"}  # fmt: skip
EVENTS = 20  # per step
FIELDS = ("vorticity", "streamfunction")


def write(
    out: Path, runs: int, ranks: int, steps: int, blocks: int, changed: dict | None = None, processes: int = 2
) -> None:
    """Write `runs` runs of `ranks` ranks below `out`: `steps` steps with EVENTS events each, `blocks` blocks per rank
    with a fingerprint of each of FIELDS and a value at every step, and scalars on rank 0.

    Runs are equal but for `changed`: {run: (step, block)} from where on that run has other bits.
    """
    tasks = [(run, rank) for run in range(runs) for rank in range(ranks)]
    for run in range(runs):
        (out / f"run-{run:03d}").mkdir(parents=True)
    one = partial(_write_rank, out, ranks, steps, blocks, changed or {})
    with ProcessPoolExecutor(processes) as pool:
        list(pool.map(one, tasks, chunksize=16))
        list(pool.map(_write_result, [out / f"run-{run:03d}" for run in range(runs)]))


def _write_rank(out: Path, size: int, steps: int, blocks: int, changed: dict, task: tuple[int, int]) -> None:
    run, rank = task
    own = np.arange(rank * blocks, (rank + 1) * blocks)
    directory = out / f"run-{run:03d}"
    with Tracer(directory / rank_file(rank), _attributes(run, rank), size=size) as tracer:
        numbers = [tracer.name(name, kind) for name, kind in REGIONS.items()]
        for step in range(1, steps + 1):
            tracer.at(0, step)
            begin = tracer.clock()
            state = np.random.default_rng([step, rank]).random((blocks, 4))
            if run in changed and step >= changed[run][0] and changed[run][1] in own:
                state[changed[run][1] - own[0], 0] += 1e-16
            for name in FIELDS:
                tracer.fingerprints(name, own, state)
            tracer.values("sample", own, state[:, 0])
            if rank == 0:
                for name in ("energy", "enstrophy", "dt", "budget"):
                    tracer.value(name, step * 0.5)
            for k in range(EVENTS - 1):
                tracer.event(numbers[1 + k % (len(REGIONS) - 1)], tracer.clock(), 8 * k)
            tracer.event(numbers[0], begin)


def _write_result(run: Path) -> None:
    traces = {path.name: sealed(path.read_bytes(), path.name) for path in trace_files(run)}
    content = {"status": "done", "exit_code": 0, "checks": [], "fingerprints": [], "traces": traces}
    (run / RESULT).write_text(written(content))


def _attributes(run: int, rank: int) -> dict:
    ordering = ("arrival", "ring")[run % 2]
    guarantee = ("none", "run")[run % 2]
    return {
        "app": "coupled", "problem": "campaign", "config": {"run": {"seed": 1}, "grid": {"n": 4096}},
        "rank": rank, "guarantee": guarantee, "seed": 1, "repeats": 1, "run_id": f"r{run}",
        "allocation_id": str(run // 4), "started": f"2026-01-01T00:{run % 60:02d}:00+00:00",
        "method": {"run.device": "cpu", "run.guarantee": guarantee},
        "options": {"run.device": {"effect": "device"}, "run.guarantee": {"effect": "reduction"}},
        "reductions": {"scalars": {"region": "allreduce.scalars", "ordering": ordering}},
        "environment": {"mpi": "MPICH", "node": f"n{rank // 64}", "process": rank, "variables": {}},
    }  # fmt: skip
