"""Times steps of plans, given as texts (`miniapps.calibrate.plans`); rank 0 prints one line of JSON.

mpirun -n 2 python -m benchmarks.predict.plan_steps "gpt dp width=64 data=2 guarantee=none" ...

Shared processors are slower for seconds or minutes at a time. So all plans are held in memory, and each of `ROUNDS`
times some steps of every plan, in another order. A plan's time is the median over its steps of all rounds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from statistics import median

import numpy as np
from mpi4py import MPI

from benchmarks.harness.results import add_quiet
from kernels.progress import Progress
from miniapps.calibrate.plans import drawing, space_of
from miniapps.partition.pricing.space import prepared
from miniapps.partition.pricing.together import learner_of

HELD = 20  # plans in memory at once
ROUNDS = 10
WARM, SECONDS, FEWEST = 1, 0.05, 2  # of a visit: steps before, time and number of the timed ones


def made(comm, text: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """(a step of a plan, what frees it)."""
    own, drawn = drawing(text.split()[0]), space_of(text).draw(np.random.default_rng(0))
    if own is None:
        learner = learner_of(comm, drawn, *prepared(drawn))
        return learner.step, learner.program.free
    return own.together(comm, drawn)


def visit(comm, step: Callable[[], object]) -> list[tuple[float, float]]:
    """(wall seconds, CPU seconds of this rank's thread) of some steps, one after the other."""
    for _ in range(WARM):
        step()
    found: list[tuple[float, float]] = []
    begun = time.perf_counter()
    while not comm.bcast(len(found) >= FEWEST and time.perf_counter() - begun > SECONDS):
        comm.Barrier()
        wall, cpu = time.perf_counter(), time.thread_time()
        step()
        found.append((time.perf_counter() - wall, time.thread_time() - cpu))
    return found


def main() -> None:
    """Times all given plans on all ranks."""
    comm = MPI.COMM_WORLD
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict.plan_steps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("plans", nargs="+", metavar="PLAN")
    add_quiet(parser)
    asked = parser.parse_args()
    progress = Progress("plans", quiet=asked.quiet or comm.rank > 0)
    rng, found = np.random.default_rng(comm.bcast(time.time_ns())), []
    for first in range(0, len(asked.plans), HELD):
        held = [made(comm, text) for text in asked.plans[first : first + HELD]]
        times: list[list[tuple[float, float]]] = [[] for _ in held]
        for number in range(ROUNDS):
            progress.show((first + len(held) * number / ROUNDS) / len(asked.plans), f"round {number + 1}")
            for k in rng.permutation(len(held)):
                times[k] += visit(comm, held[k][0])
        for _, free in held:
            free()
        found += [[median(column) for column in zip(*each, strict=True)] for each in times]
    progress.clear()
    every = comm.gather(found)
    if comm.rank == 0:
        means = np.mean(every, axis=0)
        print(json.dumps({"wall": np.max(every, axis=0)[:, 0].tolist(), "cpu": means[:, 1].tolist()}))


if __name__ == "__main__":
    main()
