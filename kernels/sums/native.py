"""Sums in C++; strided arrays are copied to contiguous ones first, so that the order is the same for both."""

from __future__ import annotations

import numpy as np

from kernels import _native, exact
from kernels.exact.reference import LIMB, nearest
from kernels.registry import variant
from kernels.sums.reference import vector


def _contiguous(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vector(x))


@variant(
    "sum",
    "lanes",
    backend="native",
    guarantee="run",
    why="64 lanes and a binary tree over them: the length fixes the order, a partition changes it",
)
def lanes(x: np.ndarray) -> float:
    """Lane l adds x[l], x[l+64], ... to +0.0, a binary tree the lanes: as a GPU block of 64 threads.

    Fixed by the length: neither vector width nor threads enter. Summing parts apart is another order.
    """
    return _native.sum_lanes(_contiguous(x))


@variant(
    "sum",
    "pairwise",
    backend="native",
    guarantee="run",
    why="halves down to runs of 1024: the length fixes the order, a partition changes it",
)
def pairwise(x: np.ndarray) -> float:
    """Halves, cut at multiples of 64, down to runs of at most 1024 in 64 lanes; error grows with log n.

    Fixed by the length, as `lanes`.
    """
    return _native.sum_pairwise(_contiguous(x))


@variant(
    "sum",
    "neumaier",
    backend="native",
    guarantee="run",
    why="left to right with the errors added up apart: more digits, but the order still enters",
)
def neumaier(x: np.ndarray) -> float:
    """Compensated, left to right (Neumaier 1974): as if with twice the digits, then rounded.

    One thread, so it repeats; the sum of the errors is itself rounded, so that a permutation can show.
    """
    return _native.sum_neumaier(_contiguous(x))


@variant(
    "sum",
    "omp-reduction",
    backend="native",
    guarantee="none",
    why="OpenMP leaves open in which order the threads' partial sums are combined",
)
def omp_reduction(x: np.ndarray, threads: int = 0) -> float:
    """`reduction(+)` of OpenMP: `threads` (0: OpenMP's default) sum a part each, the parts meet as they come.

    Not fixed: OpenMP does not say in which order the partial sums are combined, nor from which cut.
    """
    return _native.sum_omp_reduction(_contiguous(x), threads)


@variant(
    "sum",
    "omp-atomic",
    backend="native",
    guarantee="none",
    why="one atomic addition per element, in the order in which the threads arrive",
)
def omp_atomic(x: np.ndarray, threads: int = 0) -> float:
    """One `omp atomic` per element, by `threads` (0: OpenMP's default), interleaved by chance: not fixed."""
    return _native.sum_omp_atomic(_contiguous(x), threads)


@variant(
    "sum",
    "fixed-point",
    backend="native",
    guarantee="layout",
    why="the largest exponent fixes the unit, each element is rounded to it by itself, integers are added",
)
def fixed_point(x: np.ndarray) -> float:
    """Multiples of 2**(e-84), with max|x| < 2**e, added as integers and rounded once: free of order.

    Off by at most len(x) * 2**(e-85) before that rounding. NaN and infinities by IEEE rules; zero is +0.0.
    """
    x = _contiguous(x)
    part = exact.MAX_CONTRIBUTIONS
    exponent = int(exact.fixed_exponent(x, min(len(x), part)))
    if exponent == exact.NONFINITE:
        return exactly(x)
    total = 0
    for start in range(0, len(x), part):
        high, low = exact.fixed_encode(x[start : start + part], exponent).tolist()
        total += (high << LIMB) + low
    return nearest(total, exponent - 2 * LIMB)


@variant(
    "sum",
    "exact",
    backend="native",
    guarantee="exact",
    why="a superaccumulator holds every bit of every element; one rounding at the end",
)
def exactly(x: np.ndarray) -> float:
    """Correctly rounded by a superaccumulator: nothing is rounded before the end, so no order can show."""
    words = exact.zeros()
    exact.add(words, vector(x))
    return float(exact.round(words))
