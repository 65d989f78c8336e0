"""Reductions that are left before their end, drawn: no memory of others changes, and what comes next is right.

Run by tests/mpi/test_abandoned_mpi.py, and by hand with other cases:

    mpirun -n 3 python tests/mpi/programs/abandoned.py --cases 2000 --seed 5
"""

import argparse
import gc
import random

import numpy as np
from sections import COMM, report, section

import fpna
from kernels.allreduce import Reduction, plan

parser = argparse.ArgumentParser()
parser.add_argument("--cases", type=int, default=40)
parser.add_argument("--seed", type=int, default=1)
OPTIONS = parser.parse_args()

SIZES = (1, 7, 300, 5_000, 40_000, 300_000)
LABELS = (
    "direct", "ring", "recursive-doubling", "k-nomial:k=3", "library", "direct in exact", "ring in compensated",
    "direct in float64", "recursive-doubling in exact", "direct over fp8", "direct over sign:feedback=on",
    "ring over table:n=4,hops=every", "ring in exact over packed", "direct in exact over e5m2",
)  # fmt: skip
PATTERN = 0x5A


def drawn(draw):
    label = draw.choice(LABELS)
    n = draw.choice(SIZES[:4] if "exact" in label else SIZES)
    dtype = "float32" if "over" in label and "packed" not in label else draw.choice(("float32", "float64"))
    return Reduction.named(label, n, dtype)


def started(draw, reducer, x, own_out):
    """Begin a reduction and go on with it for a while, each rank as long as it likes."""
    out = np.full(reducer.shape, 7, reducer.dtype) if own_out else None
    reducer.start(x[np.newaxis], out)
    mine = random.Random(draw.random() * 1000 + COMM.rank)
    for _ in range(mine.choice((0, 0, 1, 3))):
        reducer.progress()
    return out


def next_is_right(reduction, what):
    """A new reducer of the same kind sums rightly."""
    with plan(COMM, reduction) as reducer:
        total = reducer(np.full((1, *reduction.shape), 1 + COMM.rank, reduction.dtype))
    expected = COMM.size * (COMM.size + 1) / 2
    if reduction.coding is None and not (total == expected).all():
        yield f"{what}: the next total is {total.ravel()[:3]}..., not {expected}"
    if reduction.coding is not None and not (abs(total - expected) <= expected).all():
        yield f"{what}: the next total is {total.ravel()[:3]}..., far from {expected}"


@section
def reducers_that_are_dropped():
    for case in range(OPTIONS.cases):
        draw = random.Random(f"{OPTIONS.seed} {case} {COMM.size}")
        reduction, own_out = drawn(draw), draw.random() < 0.5
        what = f"case {case}, {reduction.label}, n {reduction.shape}, {reduction.dtype}"
        takes_part = draw.random() < 0.7 or COMM.rank in draw.sample(range(COMM.size), max(COMM.size // 2, 1))
        reducer = plan(COMM, reduction)
        x = np.random.default_rng(case + COMM.rank).standard_normal(reduction.shape).astype(reduction.dtype)
        kept, out = x.copy(), None
        if takes_part:
            out = started(draw, reducer, x, own_out)
        del reducer
        gc.collect()
        # What the allocator gives now may be what was given back.
        nbytes = max(x.nbytes, 1)
        victims = [np.full(nbytes, PATTERN, np.uint8) for _ in range(12)]
        after = None if out is None else out.copy()
        COMM.Barrier()
        yield from next_is_right(reduction, what)
        COMM.Barrier()
        if any((victim != PATTERN).any() for victim in victims):
            yield f"{what}: memory of others was overwritten"
        if out is not None and out.tobytes() != after.tobytes():
            yield f"{what}: the caller's array was overwritten after its reducer had gone"
        if x.tobytes() != kept.tobytes():
            yield f"{what}: the contribution was overwritten"


@section
def communicators_that_are_dropped():
    for case in range(max(OPTIONS.cases // 4, 2)):
        draw = random.Random(f"{OPTIONS.seed} wrapped {case}")
        n, many = draw.choice(SIZES[:5]), draw.choice((1, 3, 6))
        comm = fpna.wrap(COMM, guarantee=draw.choice(("run", "exact")))
        totals = [np.zeros(n) for _ in range(many)]
        pending = [comm.Iallreduce(np.full(n, 1.0 + i), total) for i, total in enumerate(totals)]
        if draw.random() < 0.5:
            pending[0].Test()
        del comm, pending
        gc.collect()
        after = [total.copy() for total in totals]
        victims = [np.full(n, 3.0) for _ in range(8)]
        COMM.Barrier()
        yield from next_is_right(Reduction("direct", n), f"wrapped case {case}")
        COMM.Barrier()
        if any((victim != 3.0).any() for victim in victims):
            yield f"wrapped case {case}: memory of others was overwritten"
        if any(a.tobytes() != b.tobytes() for a, b in zip(totals, after, strict=True)):
            yield f"wrapped case {case}: a total was overwritten after its communicator had gone"


if __name__ == "__main__":
    report()
