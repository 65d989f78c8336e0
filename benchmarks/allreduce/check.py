"""Counts wrong elements: compares results with the serial simulator, or with a sum and its error bound.

Orderings of this suite that add in the working type must have the simulator's bits on every rank. For the MPI library,
and for other accumulations, all ranks must have equal bits, and the error must be within the bound for any order of
additions in the working type (Higham 2002, section 4.2). Integers, and MIN and MAX, are the same in any order.
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
    """The number of wrong elements of `total`, summed over the ranks. Collective.

    `known` caches on rank 0 the expected results of cells whose result does not change.
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
    """(expected total (count,), None) if bits must be equal; else (total in float64, error bound of each element)."""
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
    """Sum or product of x (m, n) over axis 0 in float64, and the error bound for any order in x's type.

    The bound is gamma(m) = m u / (1 - m u) times the sum of magnitudes, u the unit roundoff, plus room for the rounding
    of the value itself, which is computed in long double.
    """
    combine: Callable = EXACT_NUMBERS[op].reduce
    wide = x.astype(float).astype(np.longdouble)
    value, size = combine(wide, 0), combine(abs(wide), 0)
    info = ml_dtypes.finfo(x.dtype)
    room = (len(x) + 2) * float(info.eps) / 2
    bound = room / (1 - room) * size + len(x) * float(info.tiny)
    return value.astype(float), bound.astype(float)


def bits(x: np.ndarray) -> np.ndarray:
    """The bits of the array as unsigned integers."""
    return np.ascontiguousarray(x).view(f"u{x.dtype.itemsize}")


def from_rank_0(comm: MPI.Comm, x: np.ndarray | None, n: int, dtype: np.dtype) -> np.ndarray:
    """Broadcasts rank 0's array `x` (n,) of this type, as bytes, since MPI does not have every type."""
    x = x.copy() if comm.rank == 0 else np.empty(n, dtype)
    comm.Bcast(x.view(np.uint8), 0)
    return x
