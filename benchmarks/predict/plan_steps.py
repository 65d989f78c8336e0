"""Times steps of plans, given as texts (`miniapps.calibrate.plans`); rank 0 prints one line of JSON.

mpirun -n 2 python -m benchmarks.predict.plan_steps "gpt dp width=64 data=2 guarantee=none" ...
"""

from __future__ import annotations

import argparse
import json
import time
from statistics import median

import numpy as np
from mpi4py import MPI

from benchmarks.harness.results import add_quiet
from kernels.progress import Progress
from miniapps.calibrate.plans import drawing, space_of
from miniapps.partition.pricing.space import prepared
from miniapps.partition.pricing.together import learner_of

WARM, SECONDS, FEWEST = 3, 0.5, 10  # steps before, time and number of the timed ones


def timed(comm, text: str) -> tuple[float, float]:
    """(wall seconds, CPU seconds of this rank's thread) of a step, median."""
    own, drawn = drawing(text.split()[0]), space_of(text).draw(np.random.default_rng(0))
    if own is None:
        learner = learner_of(comm, drawn, *prepared(drawn))
        step, free = learner.step, learner.program.free
    else:
        step, free = own.together(comm, drawn)
    for _ in range(WARM):
        step()
    walls, used = [], []
    begun = time.perf_counter()
    while True:
        comm.Barrier()
        wall, cpu = time.perf_counter(), time.thread_time()
        step()
        walls.append(time.perf_counter() - wall)
        used.append(time.thread_time() - cpu)
        if comm.bcast(len(walls) >= FEWEST and time.perf_counter() - begun > SECONDS):
            break
    free()
    return median(walls), median(used)


def main() -> None:
    """Times all given plans on all ranks."""
    comm = MPI.COMM_WORLD
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict.plan_steps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("plans", nargs="+", metavar="PLAN")
    add_quiet(parser)
    asked = parser.parse_args()
    progress, found = Progress("plans", quiet=asked.quiet or comm.rank > 0), []
    for number, text in enumerate(asked.plans):
        progress.show(number / len(asked.plans), text)
        found.append(timed(comm, text))
    progress.clear()
    every = comm.gather(found)
    if comm.rank == 0:
        means = np.mean(every, axis=0)
        print(json.dumps({"wall": np.max(every, axis=0)[:, 0].tolist(), "cpu": means[:, 1].tolist()}))


if __name__ == "__main__":
    main()
