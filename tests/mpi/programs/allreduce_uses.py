"""All-reduce under MPI in all its uses: memory, types, operations, collectives, communicators, mistakes.

Run by tests/mpi/test_allreduce_uses_mpi.py as `mpirun -n P python allreduce_uses.py`.
"""

import itertools
import os
from functools import cache
from unittest.mock import patch

import ml_dtypes
import numpy as np
from sections import COMM, LABELS, labelled, pairs, raised, report, section, simulated

from kernels.allreduce import CallMismatch, Operation, PlanMismatch, orderings, plan
from kernels.allreduce.accumulate import ACCUMULATIONS
from kernels.allreduce.execution import route
from kernels.allreduce.operations import OPERATIONS
from kernels.allreduce.schedule import evenly
from kernels.allreduce.schedules.block_tree import children, roots
from kernels.allreduce.simulator import simulate
from kernels.guarantees import ChoiceError
from tests.order_free import defined

RANK, SIZE = COMM.rank, COMM.size
SCHEDULED = [o.name for o in orderings() if o.scheduled and "owners" not in o.needs]
OVER_BLOCKS = [o.name for o in orderings() if "owners" in o.needs]
TYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "int64": np.int64}
TYPES["bfloat16"] = ml_dtypes.bfloat16
# One of each way through the executor: copied, from the caller's memory, and in segments, which are cut shorter here.
LENGTHS = (3, 5_000, 20_000)
SEGMENTS = {"SEGMENT_BYTES": 1 << 15, "PIECE_BYTES": 1 << 11}


def numbers(seed, shape, dtype=np.float64):
    """The same on every rank; of magnitudes near 1, so that products stay in range."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype) == np.int64:
        return rng.integers(-9, 9, shape)
    return (rng.standard_normal(shape) * 2.0 ** rng.integers(-1, 2, shape)).astype(dtype)


@cache
def of_all(seed, n, dtype=np.float64, k=1):
    """The contributions of all ranks, which nobody changes."""
    return [numbers([seed, rank], (k, n), dtype) for rank in range(SIZE)]


@section
def memory_may_be_the_caller_s():
    for name in LABELS:
        for n in LENGTHS:
            xs = of_all(n, n)
            with labelled(name, (n,)) as reducer:
                expected = reducer(xs[RANK]).tobytes()
                x, out = xs[RANK].copy(), np.empty(n)
                if name not in ("library", "arrival"):
                    # The simulator's superaccumulators of long vectors take gigabytes.
                    small = n <= 5_000 or "exact" not in name
                    if small and simulated(name, xs)[RANK].tobytes() != expected:
                        yield f"{name} {n}: not the bits of the simulator"
                    if reducer(x, out=out) is not out or out.tobytes() != expected:
                        yield f"{name} {n}: other bits in `out`"
                    if x.tobytes() != xs[RANK].tobytes():
                        yield f"{name} {n}: the contribution has changed"
                    reducer(x, out=x[0])
                    if x.tobytes() != expected:
                        yield f"{name} {n}: other bits in place"
                    wide = np.concatenate([xs[RANK][0], np.zeros(1)])
                    reducer(wide[np.newaxis, :n], out=wide[1:])
                    if wide[1:].tobytes() != expected:
                        yield f"{name} {n}: other bits across the contribution"
                    strided = np.repeat(xs[RANK], 2, axis=1)[:, ::2]
                    if reducer(strided).tobytes() != expected:
                        yield f"{name} {n}: other bits from strided memory"
                    several = [np.ascontiguousarray(xs[RANK]) for _ in range(7)]
                    if any(reducer(y).tobytes() != expected for y in several):
                        yield f"{name} {n}: other bits from another place"
                elif not np.allclose(reducer(x, out=out), np.frombuffer(expected)):
                    yield f"{name} {n}: another total in `out`"


@section
def some_ranks_may_give_memory_for_the_total():
    for name in LABELS:
        for n in LENGTHS:
            xs = of_all(n, n)
            with labelled(name, (n,), check=True) as reducer:
                out = np.empty(n) if RANK % 2 else None
                total = reducer(xs[RANK], out=out)
                if out is not None and total is not out:
                    yield f"{name} {n}: another array than `out`"
                if not np.allclose(total, sum(x[0] for x in xs)):
                    yield f"{name} {n}: not the total"


@section
def a_reduction_may_be_under_way_while_others_work():
    for name in LABELS:
        for n in LENGTHS:
            xs = of_all(n, n)
            with labelled(name, (n,), check=n == 3) as one, plan(COMM, "direct", (n,)) as other:
                expected = one(xs[RANK]).copy()
                one.start(xs[RANK])
                # A message that would be stuck behind a start that waits.
                COMM.sendrecv(RANK, (RANK + 1) % SIZE, source=(RANK - 1) % SIZE)
                if RANK % 2:
                    one.progress()
                other(xs[RANK])
                total = one.finish()
                if name in ("library", "arrival"):
                    if not np.allclose(total, expected):
                        yield f"{name} {n}: another total"
                elif total.tobytes() != expected.tobytes():
                    yield f"{name} {n}: other bits"
                out = np.empty(n)
                one.start(xs[RANK], out=out)
                if "under way" not in raised(RuntimeError, lambda: one(xs[RANK])):  # noqa: B023
                    yield f"{name} {n}: a call between start and finish was taken"
                if "under way" not in raised(RuntimeError, lambda: one.start(xs[RANK])):  # noqa: B023
                    yield f"{name} {n}: two starts were taken"
                while name != "arrival" and not one.progress():
                    os.sched_yield()
                if one.finish() is not out:
                    yield f"{name} {n}: finish did not return `out`"
                if "without start" not in raised(RuntimeError, one.finish):
                    yield f"{name} {n}: finish without start"
                one.start(xs[RANK])  # left to free


@section
def every_type_and_operation():
    lengths = ((5, 2), (3_000, 1))
    for name, dtype, operation, (n, k) in pairs(SCHEDULED, [*TYPES], [*OPERATIONS.values()], lengths):
        xs = of_all(k, n, TYPES[dtype], k)
        with plan(COMM, name, (n,), dtype, operation=operation.name) as reducer:
            total = reducer(xs[RANK])
        expected = simulate(name, xs, operation=operation)[RANK]
        if total.tobytes() != expected.tobytes() or total.dtype != TYPES[dtype]:
            yield f"{name} {operation.name} {dtype} {n}"
    for dtype in ("bfloat16", "float16"):
        xs = of_all(1, 9, TYPES[dtype])
        with plan(COMM, "arrival", (9,), dtype, check=True) as reducer:
            total = reducer(xs[RANK])
            orders = COMM.bcast(reducer.drain_orders())
        if total.tobytes() != simulate("arrival", xs, orders[0])[RANK].tobytes():
            yield f"arrival {dtype}"
    for operation in ("min", "max", "prod", "sum"):
        x = np.array([[RANK + 1.0]])[: RANK % 2]  # every other rank has nothing
        expected = getattr(np, operation)([rank + 1.0 for rank in range(1, SIZE, 2)] or [1.0])
        for name in ("library", "direct", "linear"):
            with plan(COMM, name, (1,), operation=operation) as reducer:
                if SIZE > 1 and reducer(x)[0] != expected:
                    yield f"{name} {operation} of ranks without contributions: {reducer(x)}"


@section
def every_accumulation():
    lengths, types = ((1, 3), (700, 1), (9_000, 2)), ("float64", "float32", "bfloat16")
    for name, how, dtype, (n, k) in pairs(SCHEDULED, [*ACCUMULATIONS], types, lengths):
        xs = of_all(n, n, TYPES[dtype], k)
        expected = simulate(name, xs, accumulation=how)[RANK]
        with plan(COMM, name, (n,), dtype, accumulation=how, check=True) as reducer:
            total = reducer(xs[RANK]).copy()
            reducer.start(xs[RANK])
            several = k > 1 and reducer.reduction.contributions_travel
            while not (several or reducer.progress()):
                os.sched_yield()
            again = reducer.finish()
            if reducer.guarantee != (ACCUMULATIONS[how].guarantee or "run"):
                yield f"{name} {how} promises {reducer.guarantee}"
        if total.tobytes() != expected.tobytes() or again.tobytes() != expected.tobytes():
            yield f"{name} {how} {dtype} {n}"
        if how == "exact" and total.tobytes() != defined(np.concatenate(xs)).tobytes():
            yield f"{name} {how} {dtype} {n}: not the bits that all contributions have together"
        with plan(COMM, name, (n,), dtype, accumulation=how, collective="reduce-scatter") as reducer:
            part = reducer(xs[RANK])
        if part.tobytes() != expected[slice(*evenly(n, SIZE, RANK))].tobytes():
            yield f"reduce-scatter {name} {how} {dtype} {n}"
        if n > 1_000 or dtype != "float64":
            continue
        drawn = np.sort(np.random.default_rng(n).integers(0, n + 1, SIZE - 1))
        bounds = (0, *drawn, n)
        with plan(
            COMM, name, (n,), dtype, accumulation=how, collective="reduce-scatter", bounds=bounds
        ) as reducer:
            part = reducer(xs[RANK]).tobytes()
            reducer.start(xs[RANK])
            while not reducer.progress():  # what is started ends without finish()
                os.sched_yield()
            again = reducer.finish().tobytes()
        if {part, again} != {expected[bounds[RANK] : bounds[RANK + 1]].tobytes()}:
            yield f"reduce-scatter at {bounds} {name} {how} {n}"
    for name in OVER_BLOCKS:
        for how in ACCUMULATIONS:
            blocks = numbers(1, (12, 50), np.float32)
            expected = simulate(name, [blocks], owners=(0,) * 12, accumulation=how)[0]
            mine = np.arange(RANK, 12, SIZE)
            with plan(COMM, name, (50,), "float32", blocks=mine, accumulation=how) as reducer:
                if reducer(blocks[mine]).tobytes() != expected.tobytes():
                    yield f"{name} {how} of blocks"
            bounds = [50 * min(rank, 2) // 2 for rank in range(SIZE)] + [50]
            arguments = {"accumulation": how, "collective": "reduce-scatter", "bounds": bounds}
            with plan(COMM, name, (50,), "float32", blocks=mine, **arguments) as reducer:
                if reducer(blocks[mine]).tobytes() != expected[bounds[RANK] : bounds[RANK + 1]].tobytes():
                    yield f"reduce-scatter at {bounds} {name} {how} of blocks"
    for name, how, n in itertools.product(OVER_BLOCKS, ACCUMULATIONS, (1, 3_000)):
        mine = range(3) if RANK == SIZE - 1 else ()  # one rank owns all blocks: it gets its own chunks back
        with plan(COMM, name, (n,), "float32", blocks=mine, accumulation=how) as reducer:
            if (reducer(np.ones((len(mine), n), np.float32)) != 3).any():
                yield f"{name} {how} of {n}, all blocks on one rank"
    for arguments in ({"ordering": "library"}, {"operation": "max"}, {"dtype": "int64"}):
        if not raised(ChoiceError, lambda: plan(COMM, accumulation="compensated", **arguments)):  # noqa: B023
            yield f"compensated with {arguments} was planned"


@section
def a_wire_that_loses_nothing_leaves_the_bits():
    """Of short vectors, and of those that go in segments; with placement, and in parts."""
    nodes = [rank // 2 for rank in range(SIZE)]
    carried = [name for name in SCHEDULED if name != "direct"]
    how = "exact"
    for name, (dtype, n) in itertools.product(carried, (("float32", 100), ("float64", 9_000))):
        xs = of_all(n, n, TYPES[dtype], 2)
        expected = defined(np.concatenate(xs)).tobytes()
        axes = {"accumulation": how, "wire": "packed"}
        with plan(COMM, name, (n,), dtype, **axes, nodes=nodes, check=True) as reducer:
            total = reducer(xs[RANK]).tobytes()
            reducer.start(xs[RANK])
            while not reducer.progress():
                os.sched_yield()
            if {total, reducer.finish().tobytes()} != {expected}:
                yield f"{name} {how} {dtype} {n} packed"
        with plan(COMM, name, (n,), dtype, **axes, collective="reduce-scatter") as reducer:
            part = reducer(xs[RANK]).tobytes()
        first, stop = (np.dtype(dtype).itemsize * i for i in evenly(n, SIZE, RANK))
        if part != expected[first:stop]:
            yield f"reduce-scatter {name} {how} {dtype} {n} packed"
    n = 20_000
    xs = of_all(n, n, np.float32, 1)
    expected = defined(np.concatenate(xs)).tobytes()
    for name, wire in itertools.product(
        ("two-level", "ring", "rabenseifner", "binomial"), ("as is", "packed")
    ):
        with plan(COMM, name, (n,), "float32", accumulation=how, wire=wire, nodes=nodes) as reducer:
            own = xs[RANK].copy()
            if {reducer(own).tobytes(), reducer(own, out=own[0]).tobytes()} != {expected}:
                yield f"{name} {how} {n} {wire}"
    for axes, words in (
        ({"ordering": "ring", "dtype": "float32"}, "packs words of 64 bits"),
        ({"ordering": "direct", "accumulation": "exact"}, "contributions travel as they are"),
        ({"ordering": "library"}, "needs an all-reduce ordering with a schedule"),
    ):
        if words not in raised(ChoiceError, lambda: plan(COMM, wire="packed", **axes)):  # noqa: B023
            yield f"packed with {axes} was planned"


@section
def collectives_have_the_bits_of_the_all_reduce():
    for name in SCHEDULED:
        for n in (0, 1, SIZE, 7, 1000, 20_000):
            xs = of_all(n, n)
            expected = simulate(name, xs)[RANK]
            root = SIZE // 2
            with plan(COMM, name, (n,), collective="reduce", root=root, check=True) as reducer:
                total = reducer(xs[RANK])
            if (total is None) == (root == RANK):
                yield f"reduce {name} {n}: {total} on rank {RANK}, root {root}"
            elif total is not None and total.tobytes() != expected.tobytes():
                yield f"reduce {name} {n}"
            with plan(COMM, name, (n,), collective="reduce-scatter", check=True) as reducer:
                part = reducer(xs[RANK])
            if part.tobytes() != expected[slice(*evenly(n, SIZE, RANK))].tobytes():
                yield f"reduce-scatter {name} {n}"
            with plan(COMM, name, (n, 2), "float32", collective="allgather", check=True) as reducer:
                x = -np.zeros((1, n, 2), np.float32) if RANK == 1 else numbers(RANK, (1, n, 2), np.float32)
                everything = reducer(x)
            if everything.shape != (SIZE, n, 2):
                yield f"allgather {name} {n}: {everything.shape}"
            for rank in range(SIZE):
                sent = -np.zeros((n, 2), np.float32) if rank == 1 else numbers(rank, (n, 2), np.float32)
                if everything[rank].tobytes() != sent.tobytes():
                    yield f"allgather {name} {n}: not what rank {rank} sent"


def subtrees(blocks, owner):
    """The sums over the largest subtrees of this rank's blocks, (k, n), added here by the tree."""

    def added(node):
        if node[1] - node[0] == 1:
            return blocks[node[0]]
        left, right = map(added, children(node))
        return left + right

    own = [added(node) for node in roots((0, len(owner)), owner.tolist()) if owner[node[0]] == RANK]
    return np.array(own).reshape(len(own), blocks.shape[1])


@section
def only_a_tree_over_blocks_takes_sums_of_subtrees():
    for name, more in (("ring", {}), ("block-tree", {"accumulation": "exact"})):
        message = raised(ChoiceError, lambda: plan(COMM, name, (2,), blocks=[RANK], summed=True, **more))  # noqa: B023
        if "does not take sums over subtrees of blocks: choose ordering block-tree" not in message:
            yield f"{name} {more}: {message or 'sums of subtrees were taken'}"
    message = raised(PlanMismatch, lambda: plan(COMM, "block-tree", (2,), blocks=[RANK], summed=RANK == 0))
    if SIZE > 1 and "sums of subtrees" not in message:
        yield f"one rank alone passes sums: {message or 'nothing was raised'}"


@section
def blocks_give_one_total_whoever_owns_them():
    for name in OVER_BLOCKS:
        for n in LENGTHS:
            blocks = numbers(n, (24, n))
            expected = simulate(name, [blocks], owners=(0,) * 24)[0].tobytes()
            shuffled = np.random.default_rng(SIZE).integers(0, SIZE, 24)
            for owner in (np.arange(24) * SIZE // 24, shuffled, np.full(24, SIZE - 1)):
                mine = np.flatnonzero(owner == RANK)
                with plan(COMM, name, (n,), blocks=mine, check=True) as reducer:
                    if reducer(blocks[mine]).tobytes() != expected:
                        yield f"{name} {n}: other bits with owners {owner}"
                with plan(COMM, name, (n,), blocks=mine, summed=True) as reducer:
                    for start in (False, True):
                        sums = subtrees(blocks, owner)
                        if start:
                            reducer.start(sums)
                        if (reducer.finish() if start else reducer(sums)).tobytes() != expected:
                            yield f"{name} {n}: other bits with sums of subtrees, owners {owner}"
                    message = raised(ValueError, lambda: reducer.add(0, np.ones(n)))  # noqa: B023
                    if "planned for sums of subtrees" not in message:
                        yield f"{name}: {message or 'a block was added to sums of subtrees'}"
                with plan(COMM, name, (n,), blocks=mine) as reducer:
                    message = raised(ValueError, lambda: reducer(np.ones((25, n))))  # noqa: B023
                    if f"planned for {len(mine)} contributions of this rank, got 25" not in message:
                        yield f"{name}: {message or 'other contributions than blocks were taken'}"
        message = raised(ValueError, lambda: plan(COMM, name, (2,)))  # noqa: B023
        if "pass blocks=" not in message:
            yield f"{name} without blocks: {message}"
        message = raised(ValueError, lambda: plan(COMM, name, (2,), blocks=[0, 5]))  # noqa: B023
        if "each on one rank" not in message:
            yield f"{name} with blocks twice: {message}"


@section
def communicators_other_than_the_world():
    half = COMM.Split(RANK % 2, -RANK)
    xs = [numbers([1, rank], (1, 1000)) for rank in range(half.size)]
    for name in SCHEDULED:
        reducer = plan(half, name, (1000,))
        if reducer(xs[half.rank]).tobytes() != simulate(name, xs)[half.rank].tobytes():
            yield f"{name} on half of the ranks"
        reducer.free()
    reducer = plan(half, "ring", (1000,))
    half.Free()
    if reducer(xs[reducer._comm.rank]).tobytes() != simulate("ring", xs)[0].tobytes():
        yield "a reducer does not outlive the communicator it was planned for"
    reducer.free()
    if "was freed" not in raised(ValueError, lambda: plan(half, "ring", (2,))):
        yield "a communicator that was freed was taken"


@section
def nodes_may_be_named():
    xs = of_all(2, 500)
    for nodes in ([0] * SIZE, list(range(SIZE)), [rank % 2 for rank in range(SIZE)]):
        with plan(COMM, "two-level", (500,), nodes=nodes) as reducer:
            if reducer(xs[RANK]).tobytes() != simulate("two-level", xs, nodes=nodes)[RANK].tobytes():
                yield f"nodes {nodes}"
    if "one for each of" not in raised(ValueError, lambda: plan(COMM, "two-level", nodes=[0] * (SIZE + 1))):
        yield "too many nodes were taken"


@section
def operations_of_the_user():
    def last(a, b, out):  # associative, not commutative
        np.copyto(out, b)

    last_one = Operation("last", last, lambda dtype: dtype.type(0), commutative=False)
    xs = of_all(3, 50)
    for name in SCHEDULED:
        message = raised(ChoiceError, lambda: plan(COMM, name, (50,), operation=last_one).free())  # noqa: B023
        if message:
            if "not commutative" not in message or "direct" not in message:
                yield f"{name}: {message}"
            continue
        with plan(COMM, name, (50,), operation=last_one) as reducer:
            if reducer(xs[RANK]).tobytes() != (xs[-1][0] + 0.0).tobytes():
                yield f"{name} does not keep the order of the ranks"
    refused = [n for n in SCHEDULED if raised(ChoiceError, lambda: plan(COMM, n, operation=last_one).free())]  # noqa: B023
    if SIZE > 2 and not {"ring", "reverse"} <= set(refused):
        yield f"out of order, and not refused: {refused}"
    for name in ("arrival", "library", "direct in exact"):
        if not raised(ChoiceError, lambda: labelled(name, operation=last_one)):  # noqa: B023
            yield f"{name} took an operation that does not commute"


@section
def mistakes_are_named_on_all_ranks():
    odd = SIZE - 1
    for name in ("library", "direct", "direct in exact"):
        with labelled(name, (2,), check=True, name="energy") as reducer:
            for wrong, part in ((np.ones((1, 3)), "(1, 3)"), (np.ones((1, 2), np.float32), "float32")):
                x = wrong if odd == RANK else np.ones((1, 2))
                error = CallMismatch if SIZE > 1 else (ValueError, TypeError)
                message = raised(error, lambda: reducer(x))  # noqa: B023
                if part not in message or (SIZE > 1 and f"rank {odd}: " not in message):
                    yield f"{name}: {message or 'nothing was raised'}"
            if reducer(np.ones((1, 2)))[0] != SIZE:
                yield f"{name} does not go on after a mistake"
    with plan(COMM, "direct", (2,)) as reducer:
        for out in (np.ones(3), np.ones(2, np.float32), [0.0, 0.0], np.ones(4)[::2]):
            if "out is" not in raised(ValueError, lambda: reducer(np.ones((1, 2)), out=out)):  # noqa: B023
                yield f"out = {out} was taken"
    cases = [
        ({"operation": "avg"}, "sum, prod, min, max"),
        ({"collective": "scan"}, "allreduce, reduce, reduce-scatter, allgather"),
        ({"collective": "reduce", "root": SIZE}, f"0 ... {SIZE - 1}"),
        ({"collective": "reduce", "ordering": "library"}, "as it has no schedule"),
        ({"accumulation": "exact", "operation": "max"}, "is for sums, not for max"),
        ({"accumulation": "exact", "collective": "allgather"}, "an allgather adds nothing in 'exact'"),
        ({"ordering": "exact"}, "write 'direct in exact'"),
        (
            {"collective": "reduce-scatter", "bounds": [0] * (SIZE + 2), "shape": 0},
            f"among {SIZE} ranks needs {SIZE + 1}",
        ),
        ({"wire": "morse"}, "unknown wire 'morse': choose one of as is"),
        ({"ordering": "k-nomial:k=x"}, "choose 2 to 65536, not 'x'"),
        ({"ordering": "k-nomial:j=3"}, "'j=3' is no parameter of k-nomial"),
        ({"ordering": "linear:k=3"}, "takes no parameters"),
        ({"ordering": "block-tree", "collective": "allgather", "blocks": [RANK]}, "adds over blocks"),
    ]
    for arguments, part in cases:
        message = raised(ChoiceError, lambda: plan(COMM, **arguments))  # noqa: B023
        if part not in message:
            yield f"plan({arguments}): {message or 'nothing was raised'}"
    if SIZE > 1:
        message = raised(PlanMismatch, lambda: plan(COMM, operation="max" if odd == RANK else "min"))
        if "max of float64" not in message or "min of float64" not in message:
            yield f"two operations at once: {message}"
    with plan(COMM, "direct", (2,), collective="allgather") as reducer:
        if "gathers one" not in raised(ValueError, lambda: reducer(np.ones((2, 2)))):
            yield "two contributions were gathered"


if __name__ == "__main__":
    with patch.multiple(route, **SEGMENTS):  # which other runs of these ranks have as they are
        report()
