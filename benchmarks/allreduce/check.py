"""Counting wrong elements: results are held against the serial simulator, or against a sum with a bound.

What has an order of ours, and adds in the working type, must have the simulator's bits on every rank. What the MPI
library adds in an order of its own, or we in another type, must have one rank's bits on all, and be no farther from the
true value than any order of additions in the working type can be (Higham 2002, section 4.2). Integers, and MIN and MAX,
are the same in any order.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from mpi4py import MPI

from benchmarks.allreduce.cells import LIBRARY, Cell, context, contributions
from kernels.allreduce import Reduction, operations
from kernels.allreduce.simulator import simulate

EXACT_NUMBERS = {"sum": np.add, "prod": np.multiply, "min": np.minimum, "max": np.maximum}


def wrong(comm: MPI.Comm, cell: Cell, total: np.ndarray, reducer, asked, known: dict) -> int:
    """Wrong elements of `total`, added up over the ranks. Collective.

    `known` keeps, on rank 0, what has been worked out for cells whose result is always the same.
    """
    expected = bound = None
    if comm.rank == 0:
        if cell not in known or cell.ordering == "arrival":
            known[cell] = correct(cell, comm.size, total.dtype, reducer, asked)
        expected, bound = known[cell]
    to_the_bit = comm.bcast(bound is None, 0)
    n, own = len(total), total.dtype
    expected = from_rank_0(comm, expected, n, own if to_the_bit else np.dtype(float))
    if to_the_bit:
        bad = bits(total) != bits(expected)
    else:
        bound = from_rank_0(comm, bound, n, np.dtype(float))
        first = from_rank_0(comm, total, n, own)
        bad = ~(np.abs(total.astype(float) - expected) <= bound) | (bits(total) != bits(first))
    return comm.allreduce(int(bad.sum()))


def correct(cell: Cell, size: int, dtype: np.dtype, reducer, asked) -> tuple[np.ndarray, np.ndarray | None]:
    """The total that is expected (count,), and None: to the bit; or float64 with a bound on the error of each."""
    vectors = [
        contributions(
            asked.seed, rank, asked.contributions * cell.count, dtype, asked.op, asked.distribution
        ).reshape(-1, cell.count)
        for rank in range(size)
    ]
    if dtype.kind == "i" or asked.op in ("min", "max"):
        return EXACT_NUMBERS[asked.op].reduce(np.concatenate(vectors), 0), None
    if cell.ordering in (LIBRARY, "library") or asked.accumulate != "working":
        return true_value(np.concatenate(vectors), asked.op)
    more = {}
    if cell.ordering == "arrival":
        more["order"] = reducer.drain_orders()[-1].tolist()
    known = context(cell.ordering, size, asked)
    named = Reduction.named(cell.ordering)
    more |= {"accumulation": named.accumulation, "wire": named.wire}
    totals = simulate(named.ordering, vectors, operation=operations.get(asked.op), **more, **known)
    return totals[0], None


def true_value(x: np.ndarray, op: str) -> tuple[np.ndarray, np.ndarray]:
    """Sum or product of x (m, n) over axis 0 in float64, and how far the result of any order in x's type may be off.

    gamma(m) = m u / (1 - m u) of the sum of magnitudes, u the unit roundoff, with room for the rounding of the value
    itself, which is computed in the longest type there is.
    """
    combine: Callable = EXACT_NUMBERS[op].reduce
    wide = x.astype(float).astype(np.longdouble)
    value, size = combine(wide, 0), combine(abs(wide), 0)
    info = ml_dtypes.finfo(x.dtype)
    room = (len(x) + 2) * float(info.eps) / 2
    bound = room / (1 - room) * size + len(x) * float(info.tiny)
    return value.astype(float), bound.astype(float)


def bits(x: np.ndarray) -> np.ndarray:
    """The array's bits as unsigned integers."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def from_rank_0(comm: MPI.Comm, x: np.ndarray | None, n: int, dtype: np.dtype) -> np.ndarray:
    """Rank 0's array `x` (n,) of this type, on every rank; as bytes, since MPI does not know every type."""
    x = x.copy() if comm.rank == 0 else np.empty(n, dtype)
    comm.Bcast(x.view(np.uint8), 0)
    return x
