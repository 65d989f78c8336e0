"""Steps of tables of embeddings under given shardings, timed beside each other: under mpirun, for benchmarks.apps.dlrm.

    mpirun -n 2 python -m benchmarks.apps.dlrm_steps PROBLEMS.json TIMES.json

Of each problem all strategies are made; in each round every strategy takes one step that does not count and STEPS that
do, in an order drawn for the round, after a barrier. Two times: `wall`, of the rank that took longest; `cpu`, what the
step would take if nobody had to share a processor: between messages the CPU time of the rank that had most, in messages
that of the rank that had least, for it came last and did not wait.
"""

import json
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from mpi4py import MPI

from miniapps.embeddings.bags import Bags
from miniapps.embeddings.sharding import Placed, Table, parse, place
from miniapps.embeddings.tables import MESSAGES, Tables
from miniapps.layout.owners import contiguous_owner

STEPS, BLOCKS, BATCHES = 3, 16, 4  # timed in a row; blocks of rows; batches that are learned from in turn


@dataclass(frozen=True)
class Problem:
    """A DLRM's tables: `tables` (rows, Zipf's exponent, rows of a bag) of `columns`, for `batch` samples."""

    seed: int
    batch: int
    columns: int
    tables: list[tuple[int, float, int]]
    strategies: list[str]

    def placed(self, strategy: str, size: int) -> list[Placed]:
        """Who holds what under a strategy."""
        tables = [
            Table(str(t), rows, self.columns, BLOCKS, pooling)
            for t, (rows, _, pooling) in enumerate(self.tables)
        ]
        return place(tables, parse(strategy, len(tables), size), size)

    def batches(self) -> list[list[Bags]]:
        """BATCHES batches of bags, for each table, as any rank draws them."""
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


class Clock:
    """CPU time of this thread between messages, and in them, one after the other."""

    def __init__(self):
        self.begin()

    def begin(self) -> None:
        """Forget what was measured."""
        self.parts, self._last = [], time.thread_time()

    @contextmanager
    def timed(self, region: str, nbytes: int):
        """As `Tables` wants it."""
        if region not in MESSAGES:
            yield
            return
        self.split()
        yield
        self.split()

    def split(self) -> None:
        """End a part."""
        now = time.thread_time()
        self.parts.append(now - self._last)
        self._last = now


def times(problem: Problem, rounds: int) -> list:
    """Seconds by strategy, round, step and clock (`wall`, `cpu`). Collective."""
    comm = MPI.COMM_WORLD
    owner = np.repeat(contiguous_owner(BLOCKS, comm.size), -(-problem.batch // BLOCKS))[: problem.batch]
    numbers = [np.flatnonzero(owner == rank) for rank in range(comm.size)]
    own = [[bags.take(numbers[comm.rank]) for bags in batch] for batch in problem.batches()]
    tables, clock = [], Clock()
    for strategy in problem.strategies:
        placed = problem.placed(strategy, comm.size)

        def drawn(table, block, placed=placed):
            starts = placed[table].table.starts
            return np.full((int(starts[block + 1] - starts[block]), problem.columns), 0.01, np.float32)

        tables.append(Tables(comm, placed, "sorted", drawn, clock.timed))
    wall = np.zeros((len(tables), rounds, STEPS))
    parts = np.zeros((len(tables), rounds, STEPS, 2 * len(MESSAGES) + 1))
    order = np.random.default_rng(problem.seed)
    for number in range(rounds):
        for k in order.permutation(len(tables)):
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
    return np.stack([wall, cpu], axis=-1).tolist()


def main() -> None:
    """Read problems, and write their times."""
    asked = json.loads(Path(sys.argv[1]).read_text())
    answers = []
    for given in asked["problems"]:
        problem = Problem(**given | {"tables": [tuple(table) for table in given["tables"]]})
        answers.append(times(problem, asked["rounds"]))
    if MPI.COMM_WORLD.rank == 0:
        Path(sys.argv[2]).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
