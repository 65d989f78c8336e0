"""Run by mpirun: measures with reducers that are wrong on purpose and with clocks of known offset; prints JSON.

mpirun -n 3 python tests/benchmarks/programs/allreduce_measured.py
"""

import json
import time

import numpy as np
from mpi4py import MPI

from benchmarks.allreduce import __main__ as allreduce
from benchmarks.allreduce.cells import Cell
from benchmarks.allreduce.clock import GlobalClock
from benchmarks.allreduce.measure import measure
from benchmarks.allreduce.timing import repeat
from kernels.allreduce import plan

COUNT = 5
ORDERINGS = ("library", "arrival", "ring", "direct in exact")


class Faulty:
    """A reducer whose totals are spoilt by `fault(total, rank)`, in place."""

    def __init__(self, reducer, rank, fault):
        self.reducer, self.rank, self.fault = reducer, rank, fault
        self.nbytes, self.drain_orders = reducer.nbytes, reducer.drain_orders

    def __call__(self, contributions):
        total = self.reducer(contributions).copy()
        self.fault(total, self.rank)
        return total

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        return self.reducer.__exit__(*exception)


def last_bit_on_rank_1(total, rank):
    if rank == 1:
        total[2] = np.nextafter(total[2], np.inf)


def last_bit_everywhere(total, rank):
    total[0] = np.nextafter(total[0], np.inf)


def one_contribution_missing(total, rank):
    total -= 0.25


def not_a_number(total, rank):
    total[:] = np.nan


FAULTS = {
    f.__name__: f for f in (last_bit_on_rank_1, last_bit_everywhere, one_contribution_missing, not_a_number)
}


def wrong(comm, orderings, fault=None):
    """#wrong by ordering, of one round in which every total suffers the fault."""

    def faulty(*arguments, **options):
        reducer = plan(*arguments, **options)
        return Faulty(reducer, comm.rank, FAULTS[fault]) if fault else reducer

    cells = [Cell(name, COUNT, 8 * COUNT) for name in orderings]
    rounds = measure(comm, cells, options(comm, rounds=1), faulty).rounds
    return {cell.ordering: visit["wrong"] for cell, (visit,) in rounds.items()}


def options(comm, **more):
    argv = ["--check", "--sync", "barrier", "--seconds", "1e-4", "--warm-up", "1", "--repetitions", "2"]
    asked, _ = allreduce.understood(argv)
    asked.dtype, asked.nodes = np.dtype(float), (0,) * comm.size
    vars(asked).update(more)
    return asked


def shuffles(comm):
    """The orders of the cells of each round, as every rank had them."""
    cells = [Cell(name, n, 8 * n) for name in ("bare", "library") for n in (1, 2, 3)]
    measurement = measure(comm, cells, options(comm, rounds=3), plan)
    mine = [[(c.ordering, c.count) for c in order] for order in measurement.orders]
    return comm.gather(mine)


def truth(comm):
    """Of every rank: the estimated offset of its clock, which is rank 0's own, and the bound of the estimate."""
    clock = GlobalClock(comm, [0] * comm.size)
    clock.refresh()
    return comm.gather((clock.line.offset(clock.now()), clock.line.error(clock.now()), clock.line.drift))


def overrun(comm):
    """Windows whose calls take far longer on rank 1 than was expected: what is counted of five."""

    def call():
        if comm.rank == 1:
            time.sleep(0.005)

    return repeat(comm, call, 5, 1e-6, GlobalClock(comm, [0] * comm.size))


def fallback(comm):
    """How ranks were started in the end, when all calls but the first of each reducer overrun their windows."""

    def slow(*arguments, **options):
        reducer, first = plan(*arguments, **options), iter([True])
        return Faulty(reducer, comm.rank, lambda total, rank: next(first, False) or time.sleep(0.005))

    cells = [Cell("ring", COUNT, 8 * COUNT)]
    asked = options(comm, rounds=1, repetitions=4, seconds=100.0, sync="clock")
    measurement = measure(comm, cells, asked, slow)
    return measurement.sync, len(measurement.rounds[cells[0]][0]["times"])


def clocks(comm):
    """Of every rank: true offset and drift of its clock, and those estimated with their bounds."""
    ahead, drift = 100.0 * comm.rank, 1e-4 * comm.rank

    def now():
        true = time.perf_counter()
        return true + ahead + drift * true

    clock = GlobalClock(comm, range(comm.size), now)
    for _ in range(3):
        clock.refresh()
    true = time.perf_counter()
    shown = true + ahead + drift * true
    errors = clock.errors()
    return comm.gather(
        {
            "missed": abs(clock.line.globally(shown) - true),
            "allowed": clock.line.error(shown),
            "drift_missed": abs(clock.line.drift - drift / (1 + drift)),
            "drift_allowed": clock.line.drift_error,
            "errors": errors,
        }
    )


def jump(comm):
    """Why each rank gives the clock up when that of rank 1 jumps by ten seconds."""
    ahead = 0.0

    def now():
        return time.perf_counter() + ahead

    clock = GlobalClock(comm, [0] * comm.size, now)
    clock.failure = ""  # on a busy machine it may be too coarse already
    ahead = 10.0 * (comm.rank == 1)
    clock.refresh()
    return comm.gather(clock.failure)


def main():
    comm = MPI.COMM_WORLD
    report = {
        "right": wrong(comm, ("bare", *ORDERINGS)),
        "wrong": {fault: wrong(comm, ORDERINGS, fault) for fault in FAULTS},
        "shuffles": shuffles(comm),
        "overrun": overrun(comm),
        "fallback": fallback(comm),
        "truth": truth(comm),
        "clocks": clocks(comm),
        "jump": jump(comm),
    }
    if comm.rank == 0:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
