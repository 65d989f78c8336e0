"""Timed steps of tables of embeddings under given shardings, to which the analysis fits costs.

All strategies of a problem are prepared. In each round, in an order drawn for the round, every strategy takes one
warm-up step and STEPS timed steps, each after a barrier. There are two times: `wall` is that of the slowest rank; `cpu`
estimates the time of the step if no rank had to share a processor. It adds up, between messages, the largest CPU time
of any rank and, in messages, the smallest, since the rank that comes last does not wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from miniapps.embeddings.bags import Bags
from miniapps.embeddings.histogram import described
from miniapps.embeddings.sharding import SHARDINGS, Placed, Table, parse, place
from miniapps.embeddings.tables import MESSAGES, Tables
from miniapps.layout.owners import contiguous_owner

STEPS, BLOCKS, BATCHES = 3, 16, 4  # steps timed in a row; blocks of rows; batches that are used in turn


@dataclass(frozen=True)
class Problem:
    """The tables of a DLRM: `tables` (rows, Zipf's exponent, rows of a bag) of `columns`, for `batch` samples."""

    seed: int
    batch: int
    columns: int
    tables: list[tuple[int, float, int]]
    strategies: list[str]

    def placed(self, strategy: str, size: int) -> list[Placed]:
        """The placement of the tables under a strategy."""
        tables = [
            Table(str(t), rows, self.columns, BLOCKS, pooling)
            for t, (rows, _, pooling) in enumerate(self.tables)
        ]
        return place(tables, parse(strategy, len(tables), size), size)

    def batches(self) -> list[list[Bags]]:
        """BATCHES batches of bags for each table, the same on any rank."""
        rng, every = np.random.default_rng(self.seed), []
        shares = [np.cumsum(np.arange(1, rows + 1.0) ** -exponent) for rows, exponent, _ in self.tables]
        dealt = [rng.permutation(rows) for rows, _, _ in self.tables]
        for _ in range(BATCHES):
            bags = []
            for share, deal, (_, _, pooling) in zip(shares, dealt, self.tables, strict=True):
                ranks = np.searchsorted(share, rng.random(self.batch * pooling) * share[-1])
                rows = deal[np.minimum(ranks, len(deal) - 1)].astype(np.int32)
                bags.append(Bags(np.full(self.batch, pooling, np.int32), rows))
            every.append(bags)
        return every


def drawn(rng: np.random.Generator, mixed: int) -> Problem:
    """Random tables, with the five uniform shardings and `mixed` others as strategies: 2 to 6 tables of 100 to 100,000
    rows and 8 to 64 columns, bags of 1 to 32 rows, batches of 128 to 1,024 samples, Zipf's exponents up to 1.2."""
    tables = [
        (round(10 ** rng.uniform(2, 5)), round(float(rng.uniform(0, 1.2)), 2), int(2 ** rng.uniform(0, 5)))
        for _ in range(rng.integers(2, 7))
    ]
    names = list(SHARDINGS)
    strategies = list(names)
    while len(strategies) < len(names) + mixed:
        words = ",".join(rng.choice(names, len(tables)))
        if words not in strategies and len(set(words.split(","))) > 1:
            strategies.append(words)
    columns, batch = (int(2 ** rng.integers(low, high)) for low, high in ((3, 7), (7, 11)))
    return Problem(int(rng.integers(2**31)), batch, columns, tables, strategies)


class Clock:
    """The CPU time of this thread between and in messages, alternately."""

    def __init__(self):
        self.parts: list[float] = []
        self._last = 0.0

    def begin(self) -> None:
        """Discard the measured parts and start the first."""
        self.parts, self._last = [], time.thread_time()

    @contextmanager
    def timed(self, region: str, nbytes: int) -> Iterator[None]:
        """The context that `Tables` takes as `timed`."""
        if region not in MESSAGES:
            yield
            return
        self.split()
        yield
        self.split()

    def split(self) -> None:
        """End a part and start the next."""
        now = time.thread_time()
        self.parts.append(now - self._last)
        self._last = now


def times(comm, problem: Problem, rounds: int, order: str) -> np.ndarray:
    """Seconds by strategy, round, step and clock (`wall`, `cpu`), with sums in `order`. Collective."""
    owner = np.repeat(contiguous_owner(BLOCKS, comm.size), -(-problem.batch // BLOCKS))[: problem.batch]
    numbers = [np.flatnonzero(owner == rank) for rank in range(comm.size)]
    own = [[bags.take(numbers[comm.rank]) for bags in batch] for batch in problem.batches()]
    tables, clock = [], Clock()
    for strategy in problem.strategies:
        placed = problem.placed(strategy, comm.size)

        def filled(table, block, placed=placed):
            starts = placed[table].table.starts
            return np.full((int(starts[block + 1] - starts[block]), problem.columns), 0.01, np.float32)

        tables.append(Tables(comm, placed, order, filled, clock.timed))
    wall = np.zeros((len(tables), rounds, STEPS))
    parts = np.zeros((len(tables), rounds, STEPS, 2 * len(MESSAGES) + 1))
    turns = np.random.default_rng(problem.seed)
    for number in range(rounds):
        for k in turns.permutation(len(tables)):
            for step in range(-1, STEPS):
                bags = own[(number + step) % BATCHES]
                comm.Barrier()
                clock.begin()
                begin = time.perf_counter()
                sums = tables[k].look_up(bags, numbers)
                tables[k].update(sums, 1.0, 1e-6)
                if step >= 0:
                    wall[k, number, step] = time.perf_counter() - begin
                    clock.split()
                    parts[k, number, step] = clock.parts
    least = parts.copy()
    comm.Allreduce(MPI.IN_PLACE, wall, MPI.MAX)
    comm.Allreduce(MPI.IN_PLACE, parts, MPI.MAX)
    comm.Allreduce(MPI.IN_PLACE, least, MPI.MIN)
    cpu = parts[..., 0::2].sum(axis=-1) + least[..., 1::2].sum(axis=-1)
    for of in tables:
        of.free()
    return np.stack([wall, cpu], axis=-1)


def asked(problem: Problem) -> list[dict[str, Any]]:
    """The lookups of each table in a step, as `miniapps.untrusted.lookups.Asked`, from the histogram of its rows."""
    batches, found = problem.batches(), []
    for number, of in enumerate(problem.placed("row", 1)):
        rows = np.concatenate([batch[number].rows for batch in batches])
        found.append(described(of.table, problem.batch, len(batches), rows))
    return found


def shardings(problem: Problem, strategy: str, size: int) -> list[tuple[str, int]]:
    """(sharding, rank) of each table under a strategy; the rank is the one that holds the table, or 0 if several do."""
    return [
        (of.sharding, int(of.owner[0]) if of.sharding == "table" and of.owner is not None else 0)
        for of in problem.placed(strategy, size)
    ]
