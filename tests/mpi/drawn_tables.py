"""Drawn tables of embeddings under drawn shardings, in `exact`: the bits of one rank, and those of rational numbers.

    mpirun -n 3 python -m tests.mpi.drawn_tables --cases 300 [--seed 1]

Weights and gradients are wide, cancelling, subnormal, at the ends of the range, or infinities and NaN. Each case looks
up and learns twice. Rank 0 prints what failed.
"""

import argparse
import sys

import numpy as np
from mpi4py import MPI

from miniapps.embeddings.bags import Bags
from miniapps.embeddings.sharding import SHARDINGS, Table, parse, place
from miniapps.embeddings.tables import Tables
from tests.kernels.bins import order_free
from tests.kernels.test_limbs import KINDS, drawn

STEPS = 2


def case(comm, seed: int, number: int) -> list[str]:
    """What is wrong on this rank. Collective."""
    rng = np.random.default_rng([seed, number])
    columns, batch, blocks = int(rng.integers(1, 7)), int(rng.integers(1, 40)), int(rng.integers(1, 6))
    tables = [Table(f"t{t}", int(rng.integers(1, 60)), columns, blocks) for t in range(rng.integers(1, 4))]
    spec, shuffle = ",".join(rng.choice(list(SHARDINGS), len(tables))), int(rng.integers(0, 4))
    kinds = rng.choice(KINDS, 2)
    weights = [drawn(kinds[0], rng, (table.rows, columns)) for table in tables]

    def block(t, k):
        return weights[t][tables[t].starts[k] : tables[t].starts[k + 1]]

    def of(ranks, names):
        return Tables(
            ranks, place(tables, parse(names, len(tables), ranks.size), ranks.size, shuffle), "exact", block
        )

    split, alone = of(comm, spec), of(MPI.COMM_SELF, "replicated")
    owner = rng.integers(0, comm.size, batch)
    numbers = [np.flatnonzero(owner == rank) for rank in range(comm.size)]
    own, wrong = numbers[comm.rank], []
    for step in range(STEPS):
        bags = []
        for table in tables:
            lengths = rng.integers(0, 6, batch).astype(np.int32)
            bags.append(Bags(lengths, rng.integers(0, table.rows, lengths.sum()).astype(np.int32)))
        gradients = drawn(kinds[1], rng, (batch, len(tables), columns))
        found = split.look_up([bag.take(own) for bag in bags], numbers)
        expected = alone.look_up(bags, [np.arange(batch)])
        if found.tobytes() != expected[own].tobytes():
            wrong.append(f"sums of step {step}")
        for t, bag in enumerate(bags):
            held = alone.shards[t].weights
            if (
                step == 0
                and order_free(held[bag.rows], bag.samples, batch).tobytes() != expected[:, t].tobytes()
            ):
                wrong.append(f"definition of sums, table {t}")
        with np.errstate(all="ignore"):
            before = [shard.weights.copy() for shard in alone.shards]
            split.update(gradients[own], 0.5, 0.25)
            alone.update(gradients, 0.5, 0.25)
            for t, bag in enumerate(bags):
                total = order_free(gradients[bag.samples, t], bag.rows, tables[t].rows)
                stepped = before[t].copy()
                touched = np.unique(bag.rows)
                stepped[touched] -= np.float32(0.5) * total[touched] * np.float32(0.25)
                if not same(alone.shards[t].weights, stepped):
                    wrong.append(f"definition of gradients of step {step}, table {t}")
        for t, shard in enumerate(split.shards):
            whole = comm.bcast(shard.whole(comm))
            if not same(whole, alone.shards[t].weights):
                wrong.append(f"table {t} after step {step}")
    split.free()
    alone.free()
    return [f"case {number} ({spec}; {kinds[0]}, {kinds[1]}; rank {comm.rank}): {text}" for text in wrong]


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether the bits are the same, those of a NaN aside, which arithmetic on it changes."""
    return bool(((a.view(np.int32) == b.view(np.int32)) | (np.isnan(a) & np.isnan(b))).all())


def main(argv=None) -> int:
    """Draw cases on all ranks; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    comm, failed = MPI.COMM_WORLD, 0
    for number in range(options.cases):
        wrong = [text for of in comm.allgather(case(comm, options.seed, number)) for text in of]
        failed += bool(wrong)
        if comm.rank == 0 and wrong and failed <= 5:
            print(*wrong, sep="\n")
    if comm.rank == 0:
        print(f"{options.cases} cases on {comm.size} ranks, seed {options.seed}: {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
