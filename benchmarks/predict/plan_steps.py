"""Times steps of plans, given as texts (`miniapps.calibrate.plans`); rank 0 prints one line of JSON.

mpirun -n 2 python -m benchmarks.predict.plan_steps "gpt dp width=64 data=2 guarantee=none" ...

Shared processors are slower for seconds or minutes at a time. So all plans are held in memory, and each round times
some steps of every plan, in another order. A step begins when a fixed quantum of work is short on every
rank, and counts if it is short after the step, too. Beyond `ROUNDS` only plans with few such steps are timed. A
plan's time is the median over these steps, or over all if it has fewer than `FEWEST`. `chain` is how long
a fixed number of cycles took before them: clocks of processors change, and it says how fast they ran.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from mpi4py import MPI

from benchmarks.harness.results import add_quiet
from kernels.progress import Progress
from miniapps.calibrate.noise import Quiet
from miniapps.calibrate.plans import drawing, space_of
from miniapps.partition.pricing.space import prepared
from miniapps.partition.pricing.together import learner_of
from miniapps.system.heap import keep_freed_memory
from miniapps.system.quantum import chain

HELD = 20  # plans in memory at once
ROUNDS = 10
WARM, SECONDS, FEWEST = 1, 0.05, 2  # of a visit: steps before, time and number of the timed ones
ENOUGH, MOST = 12, 40  # undisturbed steps of a plan; rounds for them
PATIENCE_S = 0.3  # to wait for processors that nothing else uses, before a step


def made(comm, text: str) -> tuple[Callable[[], object], Callable[[], None]]:
    """(a step of a plan, what frees it)."""
    own, drawn = drawing(text.split()[0]), space_of(text).draw(np.random.default_rng(0))
    if own is None:
        learner = learner_of(comm, drawn, *prepared(drawn))
        return learner.step, learner.program.free
    return own.together(comm, drawn)


@dataclass
class Timed:
    """(wall seconds, CPU seconds of this rank's thread, seconds of a chain of cycles) of the steps of a plan, and
    whether each was undisturbed on all ranks."""

    seconds: list[tuple[float, float, float]] = field(default_factory=list)
    good: list[bool] = field(default_factory=list)

    def visit(self, comm, quiet: Quiet, step: Callable[[], object]) -> None:
        """Time some steps. Collective."""
        for _ in range(WARM):
            step()
        count, begun = len(self.seconds), time.perf_counter()
        while not comm.bcast(len(self.seconds) >= count + FEWEST and time.perf_counter() - begun > SECONDS):
            cycles, before = chain() / 1e9, quiet.wait(PATIENCE_S)
            wall, cpu = time.perf_counter(), time.thread_time()
            step()
            taken = time.perf_counter() - wall, time.thread_time() - cpu
            self.good.append(quiet.now() and before)
            self.seconds.append((*taken, cycles))

    def middle(self, comm) -> np.ndarray:
        """(3,) median seconds of a step: wall time of its slowest rank, as in a calibration, and CPU time and a chain,
        means over ranks. Collective."""
        every, good = np.array(comm.allgather(self.seconds)), np.array(self.good)
        steps = np.column_stack([every[:, :, 0].max(axis=0), every[:, :, 1:].mean(axis=0)])
        return np.median(steps[good if good.sum() >= FEWEST else slice(None)], axis=0)


def main() -> None:
    """Times all given plans on all ranks."""
    keep_freed_memory()
    comm = MPI.COMM_WORLD
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predict.plan_steps", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("plans", nargs="+", metavar="PLAN")
    add_quiet(parser)
    asked = parser.parse_args()
    progress = Progress("plans", quiet=asked.quiet or comm.rank > 0)
    quiet = Quiet(comm)
    rng, found, shares = np.random.default_rng(comm.bcast(time.time_ns())), [], []
    for first in range(0, len(asked.plans), HELD):
        held = [made(comm, text) for text in asked.plans[first : first + HELD]]
        times = [Timed() for _ in held]
        for number in range(MOST):
            progress.show((first + len(held) * number / MOST) / len(asked.plans), f"round {number + 1}")
            for k in rng.permutation(len(held)):
                if number < ROUNDS or sum(times[k].good) < ENOUGH:
                    times[k].visit(comm, quiet, held[k][0])
        for _, free in held:
            free()
        found += [each.middle(comm).tolist() for each in times]
        shares += [float(np.mean(each.good)) for each in times]
    progress.clear()
    if comm.rank == 0:
        names = ("wall", "cpu", "chain")
        print(
            json.dumps(dict(zip(names, np.transpose(found).tolist(), strict=True)) | {"undisturbed": shares})
        )


if __name__ == "__main__":
    main()
