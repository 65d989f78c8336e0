"""Tables of embeddings over the ranks: sums of bags and updates against their definition in float64, and their bits."""

import hashlib
from itertools import chain

import numpy as np
from sections import COMM, report, section

from miniapps.embeddings.bags import Bags
from miniapps.embeddings.sharding import Table, parse, place
from miniapps.embeddings.tables import Tables
from miniapps.layout.owners import contiguous_owner, shuffled
from tests.mpi.drawn_tables import case

COLUMNS, BATCH, MICRO, STEPS = 5, 24, 2, 3
TABLES = [Table(f"t{number}", rows, COLUMNS, 4) for number, rows in enumerate((3, 50, 17))]
SPECS = ("replicated", "table", "column", "row", "row-pooled", "table,row,column")


def drawn(number, block):
    starts = TABLES[number].starts
    shape = int(starts[block + 1] - starts[block]), COLUMNS
    return np.random.default_rng([number, block]).standard_normal(shape).astype(np.float32)


def whole():
    return [
        np.concatenate([drawn(number, block) for block in range(len(table.starts) - 1)])
        for number, table in enumerate(TABLES)
    ]


def given(step):
    """(bags of the batch, which may be empty and hold a row twice; a gradient for each)."""
    rng, bags = np.random.default_rng(step), []
    for table in TABLES:
        lengths = rng.integers(0, 5, BATCH).astype(np.int32)
        bags.append(Bags(lengths, (rng.random(lengths.sum()) ** 2 * table.rows).astype(np.int32)))
    return bags, rng.standard_normal((BATCH, len(TABLES), COLUMNS)).astype(np.float32)


def trained(spec, order, shuffle):
    """(what failed, the hash of all sums of bags and of the tables)."""
    owner = shuffled(contiguous_owner(BATCH // MICRO, COMM.size), shuffle)
    numbers = [np.flatnonzero(np.repeat(owner, MICRO) == rank) for rank in range(COMM.size)]
    own = numbers[COMM.rank]
    tables = Tables(COMM, place(TABLES, parse(spec, 3, COMM.size), COMM.size, shuffle), order, drawn)
    expected, failed, seen = [table.astype(float) for table in whole()], [], []
    for step in range(STEPS):
        bags, gradients = given(step)
        mine = [bag.take(own) for bag in bags]
        sums = tables.look_up(mine, numbers)
        again = tables.look_up(mine, numbers, learn=False)
        tables.look_up(mine, numbers)
        right = np.zeros((BATCH, len(TABLES), COLUMNS))
        for t, bag in enumerate(bags):
            np.add.at(right[:, t], bag.samples, expected[t][bag.rows])
        if np.abs(sums - right[own]).max(initial=0) > 1e-5 or again.tobytes() != sums.tobytes():
            failed.append(f"{spec} {order} {shuffle}: sums of step {step}")
        seen += sorted(zip(own.tolist(), (x.tobytes() for x in sums), strict=True))
        tables.update(gradients[own], 0.5, 0.1)
        for t, bag in enumerate(bags):
            total = np.zeros(expected[t].shape)
            np.add.at(total, bag.rows, gradients[:, t][bag.samples].astype(float))
            expected[t] -= 0.05 * total
    after = [shard.whole(COMM) for shard in tables.shards]
    after = COMM.bcast(after)
    if any(np.abs(x - y).max() > 1e-5 for x, y in zip(after, expected, strict=True)):
        failed.append(f"{spec} {order} {shuffle}: tables")
    for shard, table in zip(tables.shards, after, strict=True):
        before = shard.weights.copy()
        shard.take(table)
        if shard.weights.tobytes() != before.tobytes():
            failed.append(f"{spec} {order} {shuffle}: parts of the whole")
    tables.free()
    every = sorted(chain.from_iterable(COMM.allgather(seen)))
    content = b"".join([x for _, x in every] + [table.tobytes() for table in after])
    return failed, hashlib.sha256(content).hexdigest()


@section
def every_sharding_has_the_sums_of_the_definition_and_one_hash_for_each_order():
    for order in ("sorted", "exact"):
        hashes = {}
        for spec in SPECS:
            for shuffle in (0, 3):
                failed, found = trained(spec, order, shuffle)
                yield from failed
                if spec != "row-pooled" or order == "exact":
                    hashes[spec, shuffle] = found
        if len(set(hashes.values())) != 1:
            yield f"{order}: {hashes}"


@section
def drawn_tables_have_the_bits_of_one_rank_and_of_rational_numbers():
    for number in range(24):
        yield from case(COMM, 0, number)


if __name__ == "__main__":
    report()
