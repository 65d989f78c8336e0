"""Sums in C++; strided arrays are copied to contiguous ones first, so that the order is the same for both."""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sums.elements import vector
from kernels.sums.orders import in_order


@in_order("lanes", "sum", backend="native")
def lanes(x: np.ndarray) -> float:
    """Lane l adds x[l], x[l+64], ... to +0.0, a binary tree the lanes: as a GPU block of 64 threads.

    Fixed by the length: neither vector width nor threads enter. Summing parts apart is another order.
    """
    return _native.sum_lanes(vector(x))


@in_order("pairwise", "sum", backend="native")
def pairwise(x: np.ndarray) -> float:
    """Halves, cut at multiples of 64, down to runs of at most 1024 in 64 lanes; error grows with log n.

    Fixed by the length, as `lanes`.
    """
    return _native.sum_pairwise(vector(x))


@in_order("neumaier", "sum", backend="native")
def neumaier(x: np.ndarray) -> float:
    """Compensated, left to right (Neumaier 1974): as if with twice the digits, then rounded.

    One thread, so it repeats; the sum of the errors is itself rounded, so that a permutation can show.
    """
    return _native.sum_neumaier(vector(x))


@in_order("omp-reduction", "sum", backend="native")
def omp_reduction(x: np.ndarray, threads: int = 0) -> float:
    """`reduction(+)` of OpenMP: `threads` (0: OpenMP's default) sum a part each, the parts meet as they come.

    Not fixed: OpenMP does not say in which order the partial sums are combined, nor from which cut.
    """
    return _native.sum_omp_reduction(vector(x), threads)


@in_order("omp-atomic", "sum", backend="native")
def omp_atomic(x: np.ndarray, threads: int = 0) -> float:
    """One `omp atomic` per element, by `threads` (0: OpenMP's default), interleaved by chance: not fixed."""
    return _native.sum_omp_atomic(vector(x), threads)
