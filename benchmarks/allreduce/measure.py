"""Measures cells in rounds, each round in another order, by a common clock or behind barriers."""

from __future__ import annotations

import gc
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from mpi4py import MPI

from benchmarks.allreduce.cells import Cell, contributions, prepared, shuffled
from benchmarks.allreduce.check import wrong
from benchmarks.allreduce.clock import GlobalClock
from benchmarks.allreduce.timing import expected, repeat
from kernels.allreduce import plan
from kernels.progress import Progress

TOO_LATE = 0.5  # fraction of a round's windows that may begin late; with more, the clock is not used


@dataclass
class Measured:
    """The results: the rounds of every cell, and the method by which ranks started together."""

    rounds: dict[Cell, list[dict]]
    sync: dict
    payload: dict[Cell, int]  # bytes that a rank contributes to one call
    orders: list[list[Cell]] = field(default_factory=list)  # of each round


def measure(comm: MPI.Comm, cells: Sequence[Cell], asked, plan: Callable = plan) -> Measured:
    """Measures all cells; returns the same on all ranks. If the clock fails, measures all again behind barriers."""
    longest = asked.contributions * max(cell.count for cell in cells)
    data = contributions(asked.seed, comm.rank, longest, asked.dtype, asked.op, asked.distribution)
    reason = "asked for" if asked.sync == "barrier" else oversubscribed(comm, asked.nodes)
    with undisturbed():
        if not reason:
            clock = GlobalClock(comm, asked.nodes)
            if measurement := rounds(comm, cells, data, asked, plan, clock):
                return measurement
            reason = clock.failure
        return rounds(comm, cells, data, asked, plan, None, reason)


def rounds(comm, cells, data, asked, plan, clock: GlobalClock | None, reason: str = "") -> Measured | None:
    """Measures all rounds; returns None as soon as the clock fails. `reason`: why there is no clock. Rank 0 shows
    progress on stderr, between the cells."""
    measurement = Measured({cell: [] for cell in cells}, {"method": "barrier", "reason": reason}, {})
    known: dict = {}
    progress = Progress("allreduce", quiet=asked.quiet) if comm.rank == 0 else None
    for turn in range(asked.rounds):
        measurement.orders.append(shuffled(cells, asked.seed, turn))
        for visited, cell in enumerate(measurement.orders[-1]):
            if progress:
                done = (turn + visited / len(cells)) / asked.rounds
                progress.show(
                    done, f"round {turn + 1} of {asked.rounds}, {cell.ordering}, {cell.nbytes} bytes"
                )
            if clock and comm.bcast(clock.due() if comm.rank == 0 else None, 0):
                clock.refresh()
            if clock and clock.failure:
                return None
            gc.collect()
            with prepared(comm, cell, data, asked, plan) as (call, reducer):
                visit = repetitions(comm, call, asked, clock)
                measurement.payload[cell] = cell.nbytes if reducer is None else reducer.nbytes
                total = call()
                visit["wrong"] = wrong(comm, cell, total, reducer, asked, known) if asked.check else None
            measurement.rounds[cell].append(visit)
        if clock:
            visits = [measurement.rounds[cell][-1] for cell in cells]
            late, valid = sum(v["late"] for v in visits), sum(len(v["times"]) for v in visits)
            if late > TOO_LATE * (late + valid):
                clock.failure = f"{late} of {late + valid} windows began late on some rank"
    if progress:
        progress.clear()
    if clock:
        clock.refresh()
        if clock.failure:
            return None
        measurement.sync = {"method": "clock", "bounds": clock.errors(), "drifts": clock.drifts()}
    return measurement


def repetitions(comm, call: Callable, asked, clock: GlobalClock | None) -> dict:
    """Measures a cell in one round: warms up, then repeats as often as this round's share of repetitions and time
    allows."""
    seconds = expected(comm, call, asked.warm_up)
    most = math.ceil(asked.repetitions / asked.rounds)
    count = int(asked.seconds / asked.rounds / max(seconds, 1e-9))
    return repeat(comm, call, max(1, min(most, count)), seconds, clock)


def oversubscribed(comm: MPI.Comm, nodes: Sequence[int]) -> str:
    """The reason why windows do not work here: ranks that share a core wait for the core. Empty if none. Collective."""
    cores = comm.allgather(os.sched_getaffinity(0))
    for node in sorted(set(nodes)):
        members = [rank for rank in range(comm.size) if nodes[rank] == node]
        there = set().union(*(cores[rank] for rank in members))
        if len(members) > len(there):
            return f"{len(members)} ranks share {len(there)} cores"
    return ""


@contextmanager
def undisturbed() -> Iterator[None]:
    """A context without automatic garbage collection."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()
