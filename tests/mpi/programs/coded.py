"""Reductions over wires that lose something, under MPI: every section yields what failed on this rank; rank 0 prints
all of it as JSON.

Run by tests/mpi/test_coded_mpi.py as `mpirun -n P python coded.py`.
"""

import os

import numpy as np
from sections import COMM, labelled, raised, report, section

from kernels.allreduce import Reduction, orderings, plan
from kernels.allreduce.execution.coded import WordsReducer
from kernels.allreduce.simulator import simulate
from kernels.guarantees import ChoiceError
from kernels.wires import cells_of

RANK, SIZE = COMM.rank, COMM.size
TENSORS = [(40, 130), (70,), (3, 4, 300), (5,), (9000, 1)]
N = 17875
WIRES = [
    "float32",
    "float16",
    "fp8",
    "e4m3:scale=tensor",
    "table:n=4",
    "table:n=2,cell=tensor",
    "sign",
    "int8:scale=match",
    "int4:rotate=on",
    "e3m0",
    "int4:rotate=on,inner=int8,group=2",
    "e2m1:inner=e4m3,group=3",
]


def normal(seed, *shape):
    x = np.random.default_rng(seed).standard_normal(shape)
    return (x * 10.0 ** np.random.default_rng(seed + 1).integers(-2, 3, shape[:-1])[..., None]).astype(
        np.float32
    )


def described(label, n=N, tensors=tuple(TENSORS)):
    return Reduction.named(label, n, "float32", tensors=tensors)


def simulated(reduction, contributions, **context):
    return simulate(
        reduction.ordering,
        contributions,
        short=False,
        accumulation=reduction.accumulation,
        wire=reduction.wire,
        tensors=reduction.tensors,
        **context,
    )[RANK]


def told(expected, message):
    if expected not in message:
        yield f"{expected!r} is not in {message!r}"


def with_hops(wire):
    return f"{wire}{',' if ':' in wire else ':'}hops=every"


@section
def encoded_once():
    for accumulation in ("working", "float64", "compensated", "exact"):
        for wire in WIRES:
            reduction = described(f"direct in {accumulation} over {wire}")
            contributions = [normal(rank, 1, N) for rank in range(SIZE)]
            expected = simulated(reduction, contributions)
            with plan(COMM, reduction) as reducer:
                mine = contributions[RANK].copy()
                for call in range(2):
                    if reducer(mine).tobytes() != expected.tobytes():
                        yield f"{reduction.label}, call {call}: other bits than simulated"
                reducer.start(mine)
                while not reducer.progress():
                    os.sched_yield()
                if reducer.finish().tobytes() != expected.tobytes():
                    yield f"{reduction.label}, started: other bits than simulated"
                if reducer(mine, out=mine[0]).tobytes() != expected.tobytes():
                    yield f"{reduction.label}, in place: other bits than simulated"


@section
def encoded_at_every_hop():
    for ordering in orderings():
        if not ordering.scheduled:
            continue
        for wire in ("float32", "fp8", "sign"):
            for n, tensors in ((N, tuple(TENSORS)), (5000, None), (3, None)):
                reduction = described(f"{ordering.name} over {with_hops(wire)}", n, tensors)
                context, blocks, counts = {}, None, [1 + rank % 2 for rank in range(SIZE)]
                if "nodes" in ordering.needs:
                    context["nodes"] = [0] * SIZE
                if "owners" in ordering.needs:
                    owners = [(3 * block + 1) % SIZE for block in range(SIZE + 2)]
                    context["owners"], counts = owners, [owners.count(rank) for rank in range(SIZE)]
                    blocks = [block for block, owner in enumerate(owners) if owner == RANK]
                contributions = [normal(rank, k, n) for rank, k in enumerate(counts)]
                short = reduction.total_bytes <= ((1 << 18) if SIZE == 2 else (1 << 13))
                expected = simulate(
                    ordering.name, contributions, short=short, wire=reduction.wire, tensors=tensors, **context
                )[RANK]
                with plan(COMM, reduction, blocks=blocks) as reducer:
                    for _ in range(2):
                        if reducer(contributions[RANK]).tobytes() != expected.tobytes():
                            yield f"{reduction.label}, {n}: other bits than simulated"


def owned(shuffle):
    """Eight blocks over the ranks."""
    return [block for block in range(8) if (block * shuffle + block // 3) % SIZE == RANK]


@section
def blocks_of_any_owner_give_one_total():
    everything = normal(7, 8, N)
    for wire in WIRES:
        reduction = described(f"direct in exact over {wire}")
        (expected, *_) = simulate("direct", [everything], accumulation="exact", wire=wire, tensors=TENSORS)
        for shuffle in (1, 3):
            blocks = owned(shuffle)
            with plan(COMM, reduction, blocks=blocks) as reducer:
                used = reduction.coding
                many = used.inner is None and max(COMM.allgather(len(blocks))) * used.codec.bits > 64
                if (type(reducer) is WordsReducer) != many:
                    yield f"{reduction.label}: {type(reducer).__name__} for {len(blocks)} blocks"
                if reducer(everything[blocks]).tobytes() != expected.tobytes():
                    yield f"{reduction.label}, blocks {blocks}: other bits than one rank's"
                reducer.start(everything[blocks])
                reducer.progress()
                if reducer.finish().tobytes() != expected.tobytes():
                    yield f"{reduction.label}, started: other bits than one rank's"
                for block in reversed(blocks):
                    reducer.add(block, everything[block])
                if reducer.finish().tobytes() != expected.tobytes():
                    yield f"{reduction.label}, added: other bits than one rank's"


@section
def two_levels_with_ranks_that_have_nothing_or_several_groups():
    everything = normal(11, 7, N)
    for group in (1, 2, 5, 7, 9):
        wire = f"int4:inner=int8,group={group}"
        (expected, *_) = simulate("direct", [everything], accumulation="exact", wire=wire, tensors=TENSORS)
        for owners in ([0] * 7, [SIZE - 1] * 7, [block // 3 % SIZE for block in range(7)]):
            blocks = [block for block, owner in enumerate(owners) if owner == RANK]
            with plan(COMM, described(f"direct in exact over {wire}"), blocks=blocks) as reducer:
                for _ in range(2):
                    if reducer(everything[blocks]).tobytes() != expected.tobytes():
                        yield f"{wire}, blocks {blocks}: other bits than one rank's"
    twice = [0, 1] if SIZE > 1 else [0, 0]
    reduction = described("direct in exact over int4:inner=int8,group=2")
    yield from told("each on one rank", raised(ValueError, lambda: plan(COMM, reduction, blocks=twice)))


@section
def two_levels_divide_the_total_before_it_is_encoded():
    contributions = [normal(rank, 1, N) for rank in range(SIZE)]
    for accumulation in ("working", "exact"):
        plain = f"direct in {accumulation} over float32:inner=int8,group=2"
        expected = simulated(described(plain), contributions).astype(np.float64) / 3
        made = Reduction.named(plain, N, "float32", tensors=tuple(TENSORS), divisor=3)
        with plan(COMM, made) as reducer:
            if not np.allclose(reducer(contributions[RANK]), expected, rtol=1e-6, atol=1e-6):
                yield f"{made.label}: not a third of the sum"


@section
def what_is_lost_comes_back():
    calls, cells = 6, cells_of(N, TENSORS)
    everything = normal(9, 8, N)
    for wire in ("sign:feedback=on", "table:n=2,scale=match,feedback=on", "float16:feedback=on"):
        reduction = described(f"direct in exact over {wire}")
        # By hand, as one rank that has all blocks.
        lost, lost_of_total = np.zeros((8, N), np.float32), np.zeros(N, np.float32)
        expected = []
        for _ in range(calls):
            y = everything + lost
            decoded = np.array([reduction.coding.codec.over(each, cells) for each in y])
            lost = y - decoded
            total = decoded.astype(np.float64).sum(
                axis=0
            )  # exact enough: checked against the simulator elsewhere
            z = simulate("direct", [decoded], accumulation="exact")[0] + lost_of_total
            expected.append(reduction.coding.codec.over(z, cells))
            lost_of_total = z - expected[-1]
            if not np.allclose(total, z - (z - total), rtol=1e-3, atol=1e-3):
                yield "the reference is wrong"
        for shuffle in (1, 3):
            blocks = owned(shuffle)
            with (
                plan(COMM, reduction, blocks=blocks) as reducer,
                plan(COMM, reduction, blocks=blocks) as again,
            ):
                for call in range(calls):
                    if call == 3:
                        again.restore_lost(*reducer.lost())
                    used = again if call >= 3 else reducer
                    if used(everything[blocks]).tobytes() != expected[call].tobytes():
                        yield f"{reduction.label}, call {call}: other bits than one rank's"
                mine, of_total = again.lost()
                if mine.tobytes() != lost[blocks].tobytes() or of_total.tobytes() != lost_of_total.tobytes():
                    yield f"{reduction.label}: lost is other than one rank's"


@section
def what_the_total_of_a_single_cell_lost_is_told_by_its_one_owner():
    with labelled("direct over sign:feedback=on", 8, "float32") as reducer:
        reducer(normal(COMM.rank, 1, 8))
        _, of_total = reducer.lost()
        if of_total.any() != (COMM.size > 1) or len(set(COMM.allgather(of_total.tobytes()))) > 1:
            yield f"rank {COMM.rank}: {of_total}"


@section
def an_odd_number_of_blocks_is_refused():
    with labelled("direct in exact over fp8", N, "float32", tensors=TENSORS) as reducer:
        yield from told("pass plan blocks=", raised(ValueError, lambda: reducer(normal(1, 2, N))))
    with labelled("direct over fp8", N, "float32", tensors=TENSORS) as reducer:
        yield from told("feedback=on", raised(ChoiceError, reducer.lost))
    with labelled("direct over fp8:feedback=on", N, "float32", tensors=TENSORS) as reducer:
        wrong = np.zeros((2, N), np.float32), np.zeros(N, np.float32)
        yield from told("shape", raised(ValueError, lambda: reducer.restore_lost(*wrong)))


@section
def nothing_and_little():
    for n in (0, 1, SIZE - 1, 4096, 4097):
        for wire in ("fp8", "sign", "int4:inner=int8,group=2"):
            contributions = [normal(rank, 1, n) for rank in range(SIZE)]
            reduction = described(f"direct over {wire}", n, None)
            with plan(COMM, reduction) as reducer:
                if reducer(contributions[RANK]).tobytes() != simulated(reduction, contributions).tobytes():
                    yield f"{reduction.label}, {n}: other bits than simulated"


@section
def numbers_that_are_none_reach_all():
    for wire in WIRES:
        contributions = [normal(rank, 1, N) for rank in range(SIZE)]
        contributions[-1][0, 11] = np.nan
        kept = wire if "inner" in wire else f"{wire}{',' if ':' in wire else ':'}feedback=on"
        with plan(COMM, described(f"direct in exact over {kept}")) as reducer:
            if not np.isnan(reducer(contributions[RANK])[11]):
                yield f"{wire}: the NaN of the last rank is gone"


if __name__ == "__main__":
    report()
