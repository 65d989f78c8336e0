"""Contributions that are added one by one under MPI: the bits of the call that takes all of them at once.

Run by tests/mpi/test_added_mpi.py as `mpirun -n P python added.py`.
"""

import itertools
import tracemalloc
from functools import cache

import numpy as np
from sections import COMM, raised, report, section

from kernels.allreduce import CallMismatch, Reduction, orderings, plan
from kernels.allreduce.accumulate import ACCUMULATIONS

RANK, SIZE = COMM.rank, COMM.size
BLOCKS = 11
OWNERS = {
    "contiguous": np.arange(BLOCKS) * SIZE // BLOCKS,
    "scattered": np.random.default_rng(SIZE).integers(0, SIZE, BLOCKS),
    "on the last rank": np.full(BLOCKS, SIZE - 1),
}
NAMES = [o.name for o in orderings()]


@cache
def numbers(n, dtype, decades):
    """Of all blocks, the same on every rank; some cancel."""
    rng = np.random.default_rng([n, decades])
    x = rng.standard_normal((BLOCKS, n)) * 10.0 ** rng.integers(-decades, decades + 1, (BLOCKS, n))
    x[3], x[8] = -x[1], -0.0
    x = x.astype(dtype)
    x.flags.writeable = False  # whoever asks for them again gets the same
    return x


def planned(name, accumulation, n, dtype, owner, **axes):
    """The reducer; None where ordering and accumulation do not go together."""
    scheduled = next(o.scheduled for o in orderings() if o.name == name)
    if accumulation != "working" and not scheduled:
        return None
    mine = np.flatnonzero(OWNERS[owner] == RANK)
    replay = [range(SIZE)] * 9 if name == "arrival" else None
    return plan(
        COMM, Reduction(name, (n,), dtype, accumulation=accumulation, **axes), blocks=mine, replay=replay
    )


def added(reducer, x, seed):
    """The total of the contributions of this rank's blocks, added in a shuffled order, from memory that is reused."""
    order = np.random.default_rng([seed, RANK]).permutation(reducer.blocks)
    buffer = np.empty(x.shape[1:], x.dtype)
    for block in order:
        buffer[...] = x[block]
        reducer.add(block, buffer)
    return reducer.finish()


@section
def every_ordering_in_every_accumulation():
    owners = itertools.cycle(OWNERS)  # not every owner with every pair, but each with many
    for name, accumulation in itertools.product(NAMES, ACCUMULATIONS):
        owner = next(owners)
        for n, dtype, decades in ((3, "float64", 2), (700, "float32", 9), (2, "float64", 100)):
            if decades == 100 and accumulation != "exact":
                continue  # whose sums then do not fit into few numbers
            reducer = planned(name, accumulation, n, dtype, owner, check=n == 3)
            if reducer is None:
                continue
            with reducer:
                x = numbers(n, dtype, decades)
                expected = reducer(x[list(reducer.blocks)]).tobytes()
                total = added(reducer, x, n).tobytes()
                # The library may add two calls in two orders.
                if name != "library" and total != expected:
                    yield f"{name} in {accumulation}, {owner}, {dtype} {n}, {decades} decades"
                elif not np.allclose(np.frombuffer(total), np.frombuffer(expected)):
                    yield f"{name}: another total"


@section
def long_vectors():
    for name in ("direct", "ring", "block-tree", "library"):
        for accumulation in ("working", "compensated", "exact") if name != "library" else ("working",):
            n = 300_000 if accumulation == "working" else 6_000
            for owner in OWNERS:
                with planned(name, accumulation, n, "float64", owner) as reducer:
                    x = numbers(n, "float64", 5)
                    expected = reducer(x[list(reducer.blocks)]).tobytes()
                    if name != "library" and added(reducer, x, 1).tobytes() != expected:
                        yield f"{name} in {accumulation}, {owner}"
                    # Calls with other memory, whose requests are kept in place of those of add().
                    for elsewhere in [x[list(reducer.blocks)] for _ in range(3)]:
                        reducer(elsewhere)
                    if name != "library" and added(reducer, x, 2).tobytes() != expected:
                        yield f"{name} in {accumulation}, {owner}: after calls"
                    if name == "library" and not np.allclose(added(reducer, x, 1), np.frombuffer(expected)):
                        yield f"{name}, {owner}"


@section
def other_types_operations_and_collectives():
    x = numbers(50, "float64", 1)
    for name in ("direct", "linear", "block-tree"):
        for axes in (
            *({"operation": operation} for operation in ("prod", "min", "max")),
            *({"collective": "reduce-scatter", "accumulation": a} for a in ("working", "exact")),
            {"collective": "reduce", "root": SIZE - 1},
        ):
            accumulation = axes.pop("accumulation", "working")
            with planned(name, accumulation, 50, "float64", "contiguous", **axes) as reducer:
                expected = reducer(x[list(reducer.blocks)])
                expected = None if expected is None else expected.copy()
                total = added(reducer, x, 1)
            if (total is None) != (expected is None) or (
                total is not None and total.tobytes() != expected.tobytes()
            ):
                yield f"{name} {axes}"
        for dtype in ("bfloat16", "float16", "int64"):
            with planned(name, "working", 50, dtype, "scattered") as reducer:
                y = x.astype(reducer.dtype)
                if reducer(y[list(reducer.blocks)]).tobytes() != added(reducer, y, 1).tobytes():
                    yield f"{name} {dtype}"
    with plan(COMM, "ring", (4,), collective="allgather", blocks=[RANK]) as reducer:
        expected = reducer(x[RANK : RANK + 1, :4]).tobytes()
        reducer.add(RANK, x[RANK, :4])
        if reducer.finish().tobytes() != expected:
            yield "allgather"


@section
def few_contributions_are_kept():
    n, k = 20_000, 64
    mine = np.arange(RANK * k, (RANK + 1) * k)
    x = np.random.default_rng(RANK).standard_normal(n)
    limits = {
        "block-tree": 7 + 4,
        "direct": 1 + 1,
        "ring": 1 + 1,
        "direct in exact": 2 * 5,
        "direct in compensated": 4 + 2,
    }
    for label, most in limits.items():
        with plan(COMM, Reduction.named(label, (n,)), blocks=mine) as reducer:
            reducer.add(mine[0], x)  # what is made once is made
            tracemalloc.start()
            for block in mine[1:]:
                reducer.add(block, x)
            peak = tracemalloc.get_traced_memory()[1] / x.nbytes
            tracemalloc.stop()
            reducer.finish()
        if peak > most:
            yield f"{label}: memory of {peak:.1f} contributions for {k} blocks, more than {most}"


@section
def mistakes_are_named():
    with plan(COMM, "direct", (2,), blocks=[RANK, RANK + SIZE], name="energy") as reducer:
        one = np.ones(2)
        for call, error, part in (
            (
                lambda: reducer.add(2 * SIZE, one),
                ValueError,
                f"block {2 * SIZE} is not of this rank, which was planned",
            ),
            (lambda: reducer.add(RANK, np.ones(3)), ValueError, "one contribution of shape (2,)"),
            (lambda: reducer.add(RANK, np.ones(2, np.float32)), TypeError, "type float64, got float32"),
            (reducer.finish, RuntimeError, "without start"),
        ):
            if part not in raised(error, call):
                yield f"{part}: {raised(error, call) or 'nothing was raised'}"
        reducer.add(RANK, one)
        for call, error, part in (
            (lambda: reducer.add(RANK, one), ValueError, f"block {RANK} was added before"),
            (reducer.finish, ValueError, f"before the contributions of block {RANK + SIZE} were added"),
            (lambda: reducer(np.ones((2, 2))), RuntimeError, "under way"),
        ):
            if part not in raised(error, call):
                yield f"{part}: {raised(error, call) or 'nothing was raised'}"
        if reducer.progress():
            yield "progress() while contributions are added"
        reducer.add(RANK + SIZE, one)
        if reducer.finish().tolist() != [2 * SIZE] * 2:
            yield "after mistakes: another total"
        reducer.start(np.ones((1, 2)))
        if "under way" not in raised(RuntimeError, lambda: reducer.add(RANK, one)):
            yield "a contribution was added to what was started"
        reducer.finish()
        reducer.add(RANK, one)  # left to free
    with plan(COMM, "direct", (2,)) as reducer:
        if "without blocks=" not in raised(ValueError, lambda: reducer.add(0, one)):
            yield "no blocks, and a contribution was added"
    with plan(COMM, "direct", (2,), blocks=[RANK], check=True) as reducer:
        if SIZE > 1:
            if RANK:
                reducer.add(RANK, one)
            else:
                reducer._started = reducer._adding()
            if "rank 0: " not in raised(CallMismatch, reducer.finish):
                yield "in checked mode a missing contribution was not named everywhere"


if __name__ == "__main__":
    report()
