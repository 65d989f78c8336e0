"""Sums and dot products in C++, each in the order that its name states.

Vector width does not change bits; threads change only those of `omp-*`. `threads`: threads of OpenMP, 0 for its
default. A dot product adds the products, each rounded to the accumulator, in the order of the sum of that name.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sums.elements import ACCUMULATORS, terms
from kernels.sums.orders import in_order
from kernels.threads import checked

LANES = 64
BLOCK = 4096  # elements of a block of `block-tree`


def total(function, x, y=None, *arguments) -> np.floating:
    """Calls a C++ function for the elements of `x`, or its products with `y`; returns a number of the accumulator."""
    factors = terms(x, y)
    return ACCUMULATORS[factors[-1]].type(function(*factors, *arguments))


def partial_sums(x, y, segment: int, lanes: int, threads: int = 0) -> np.ndarray:
    """The sums of consecutive segments of the terms, each in `lanes` lanes: (segments,) of the accumulator's type.

    There is at least one; it is 0.0 without terms.
    """
    return _native.sum_partials(*terms(x, y), segment, lanes, checked(threads))


def aligned_tree(p: np.ndarray) -> np.floating:
    """p[i] += p[i + s] for s = 1, 2, 4, ... and i a multiple of 2 s; returns p[0] and overwrites `p`."""
    return p.dtype.type(_native.sum_aligned(p))


@in_order("lanes", "sum", "dot", backend="native")
def lanes(x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """Lane l adds x[l], x[l+64], ... to +0.0; a binary tree adds the lanes, as a GPU block of 64 threads does.

    The length fixes the order. Sums of separate parts have another order.
    """
    return total(_native.sum_lanes, x, y, LANES)


@in_order("pairwise", "sum", "dot", backend="native")
def pairwise(x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """Halves, cut at multiples of 64, down to runs of at most 1024 in 64 lanes; the error grows with log n.

    The first half of n terms has ceil(floor(n/2) / 64) * 64 terms. The length fixes the order.
    """
    return total(_native.sum_pairwise, x, y)


@in_order("kahan", "sum", backend="native")
def kahan(x: np.ndarray) -> np.floating:
    """Left to right; the error of each addition is subtracted from the next element (Kahan 1965).

    One thread, so it repeats. Errors are lost where an element exceeds the sum before it, so the order changes bits.
    """
    return total(_native.sum_kahan, x)


@in_order("neumaier", "sum", "dot", backend="native")
def neumaier(x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """Compensated, left to right (Neumaier 1974): as if with twice the digits, then rounded.

    One thread, so it repeats. The sum of the errors is itself rounded, so a permutation can change bits.
    """
    return total(_native.sum_neumaier, x, y)


@in_order("dot2", "dot", backend="native")
def dot2(x: np.ndarray, y: np.ndarray) -> np.floating:
    """As if with twice the digits, then rounded (Ogita, Rump & Oishi 2005, algorithm 5.3, Dot2).

    The errors of the products, by fused multiply-add, and of the additions are added separately, left to right. One
    thread, so it repeats; the sum of the errors is itself rounded. Errors of products below the subnormals are lost.
    """
    return total(_native.dot2, x, y)


@in_order("block-tree", "sum", "dot", backend="native")
def block_tree(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """An aligned binary tree over blocks of 4096 elements, each summed in 64 lanes.

    The index alone decides which elements meet, so `threads`, which share the blocks, do not change bits.
    """
    return aligned_tree(partial_sums(x, y, BLOCK, LANES, threads))


@in_order("omp-reduction", "sum", "dot", backend="native")
def omp_reduction(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """`reduction(+)` of OpenMP: each of `threads` sums a part in 64 lanes; the parts are combined as they end.

    Not fixed: OpenMP specifies neither the order in which partial sums are combined nor the number of threads.
    """
    return total(_native.sum_omp_reduction, x, y, checked(threads))


@in_order("omp-ordered", "sum", "dot", backend="native")
def omp_ordered(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """`omp ordered`: `threads` parts of equal length (the first may have one more), in 64 lanes, added left to right.

    The length and the number of threads fix the order: another number of threads gives other bits.
    """
    return total(_native.sum_omp_ordered, x, y, checked(threads))


@in_order("omp-atomic", "sum", "dot", backend="native")
def omp_atomic(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """One `omp atomic` per element, by `threads` in random interleaving: not fixed."""
    return total(_native.sum_omp_atomic, x, y, checked(threads))
