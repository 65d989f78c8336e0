"""The noise of a machine: a rank's share of its processor, in windows that all ranks have in common.

A window is as short as the interval between readings of the CPU clock. A longer window would average over the time
slices of a scheduler, some milliseconds each; but a rank that runs at half speed delays its partners less than one that
stops for half of the time.
"""

from __future__ import annotations

import time

import numpy as np
from mpi4py import MPI

from miniapps.system.quantum import chain, quantum, undisturbed
from miniapps.trace.schema import OTHER
from miniapps.trace.writer import Tracer

WINDOW_S = 0.001
LOOK_S = 0.001  # between two readings of the CPU clock, each of which needs a system call
QUANTUM, CHAIN = "quantum", "chain"  # regions, as long as their CPU time


def windows(comm, seconds: float) -> np.ndarray:
    """CPU time over wall time of this rank in consecutive windows, float64 (n,): 1 if nothing else ran on its
    processor. All ranks spin, in the same windows of the clock that the ranks of a node share. Collective."""
    count = max(1, round(seconds / WINDOW_S))
    begin = comm.bcast(time.perf_counter())
    comm.Barrier()
    first = comm.bcast(time.perf_counter() + LOOK_S)
    if first < begin or first > time.perf_counter() + 60.0:  # this node has another clock
        first = time.perf_counter()
    end = first + count * WINDOW_S
    walls, used = [time.perf_counter()], [time.thread_time()]
    look = first
    while walls[-1] < end:
        while time.perf_counter() < look:
            pass
        used.append(time.thread_time())
        walls.append(time.perf_counter())
        look = max(look + LOOK_S, walls[-1])
    return shares(np.array(walls), np.array(used), first + WINDOW_S * np.arange(count + 1))


class Quiet:
    """Waits for processors that nothing else uses, on all ranks of a communicator. `waits`: how often; `at_once`: how
    often they were so at once; `waited`: seconds in all."""

    def __init__(self, comm):
        self._comm = comm
        self.waits = self.at_once = 0
        self.waited = 0.0

    def wait(self, seconds: float) -> bool:
        """Wait until all ranks have a short quantum at the same time, at most `seconds` of rank 0; returns whether they
        had. Collective."""
        begin = time.perf_counter()
        found = self.now()
        self.waits += 1
        self.at_once += found
        while not found and self._comm.bcast(time.perf_counter() < begin + seconds):
            found = self.now()
        self.waited += time.perf_counter() - begin
        return found

    def now(self) -> bool:
        """Whether all ranks have a short quantum. Collective."""
        return self._comm.allreduce(undisturbed(), MPI.MIN)


def record_quantum(tracer: Tracer) -> None:
    """Record a quantum and a chain (`miniapps.system.quantum`)."""
    for name, measure in ((QUANTUM, quantum), (CHAIN, chain)):
        taken = measure()
        end = tracer.clock()
        tracer.interval(tracer.name(name, OTHER), end - taken, end)


def shares(walls: np.ndarray, used: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """CPU time over wall time between `edges`, of a rank that had used `used` (n,) seconds of CPU time at the times
    `walls` (n,). Between two readings, it is assumed to wait first and then run."""
    stood = walls[1:] - np.diff(used)
    at = np.insert(walls, np.arange(1, len(walls)), np.clip(stood, walls[:-1], walls[1:]))
    total = np.insert(used, np.arange(1, len(used)), used[:-1])
    return np.clip(np.diff(np.interp(edges, at, total)) / np.diff(edges), 0.0, 1.0)
