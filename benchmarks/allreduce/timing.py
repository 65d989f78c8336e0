"""Repeats a call that all ranks make together, from a common start or behind a barrier.

In windows, repetition i starts on every rank when the common clock shows `first + i width`, so no rank's time includes
earlier work of another rank (SKaMPI; Hunold and Carpen-Amarie 2015). The time of a repetition is from the common start
to the end on the last rank. If a rank started late, because the previous repetition took longer than the window or the
rank had lost its core, the repetition is invalid.

Ranks leave a barrier at slightly different times. Then the time of a repetition is the longest of a rank by its own
clock, as in the OSU benchmarks.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from mpi4py import MPI

from benchmarks.allreduce.clock import GlobalClock

BATCH = 50  # consecutive windows without a message in between
LEAD = 2e-4  # seconds from the announcement of a batch to its first window
LATE = 1e-6, 0.02  # seconds, plus a fraction of the expected time, by which a rank may start late
ROOM = 1.5, 2e-5  # a window is the expected time times this factor, plus these seconds


def expected(comm: MPI.Comm, call: Callable, warm_up: int) -> float:
    """Seconds of a call on the slowest rank: the quickest of the second half of `warm_up` calls. Collective."""
    taken = _behind_barriers(comm, call, warm_up)[warm_up // 2 :]
    slowest = np.empty_like(taken)
    comm.Allreduce(taken, slowest, MPI.MAX)
    return float(slowest.min())


def repeat(comm: MPI.Comm, call: Callable, count: int, seconds: float, clock: GlobalClock | None) -> dict:
    """Repeats the call `count` times; returns `times` of the valid repetitions, each rank's mean `own` time, and the
    number of `late` ones.

    Times are in seconds. `seconds` is the expected time of a call; `clock` None means barriers. Collective; all ranks
    get the same result.
    """
    if clock:
        common, own, late = _in_windows(comm, call, count, seconds, clock)
    else:
        own = _behind_barriers(comm, call, count)
        common, late = own, np.zeros(count, bool)
    comm.Allreduce(MPI.IN_PLACE, late, MPI.LOR)
    slowest = np.empty_like(common)
    comm.Allreduce(common, slowest, MPI.MAX)
    valid = ~late
    mean = float(own[valid].mean()) if valid.any() else 0.0
    return {
        "times": [round(t, 10) for t in slowest[valid].tolist()],
        "own": comm.allgather(round(mean, 10)),
        "late": int(late.sum()),
    }


def _in_windows(comm, call, count, seconds, clock: GlobalClock):
    """(seconds since the common start, seconds since this rank's own start, whether it started late)."""
    now, width = clock.now, seconds * ROOM[0] + ROOM[1]
    common, own, late = np.empty(count), np.empty(count), np.empty(count, bool)
    first = np.empty(1)
    for batch in range(0, count, BATCH):
        if comm.rank == 0:
            first[0] = now() + LEAD
        comm.Bcast(first, 0)
        start, end = batch, min(batch + BATCH, count)
        for i in range(start, end):
            common_start = clock.line.local(first[0] + (i - start) * width)
            while (begin := now()) < common_start:
                pass
            call()
            done = now()
            common[i] = done - common_start
            own[i] = done - begin
            late[i] = begin - common_start > LATE[0] + LATE[1] * seconds
        slowest = comm.allreduce(float(np.quantile(own[start:end], 0.9)), op=MPI.MAX)
        width = slowest * ROOM[0] + ROOM[1]
    return common, own, late


def _behind_barriers(comm, call, count):
    own = np.empty(count)
    for i in range(count):
        comm.Barrier()
        begin = time.perf_counter()
        call()
        own[i] = time.perf_counter() - begin
    return own
