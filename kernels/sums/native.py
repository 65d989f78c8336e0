"""Sums and dot products in C++, each in the order that its name states.

Vector width does not enter the bits, threads only those of `omp-*`. `threads`: of OpenMP, 0 for its default. A dot
product adds the products, each rounded to the accumulator, in the order of the sum of that name.
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
    """What a function of C++ makes of the elements of `x`, or of its products with `y`: a number of the accumulator."""
    factors = terms(x, y)
    return ACCUMULATORS[factors[-1]].type(function(*factors, *arguments))


def partial_sums(x, y, segment: int, lanes: int, threads: int = 0) -> np.ndarray:
    """The sums of consecutive segments of the terms, each in `lanes` lanes: (segments,) of the accumulator's type.

    At least one, which is 0.0 where there are no terms.
    """
    return _native.sum_partials(*terms(x, y), segment, lanes, checked(threads))


def aligned_tree(p: np.ndarray) -> np.floating:
    """p[i] += p[i + s] for s = 1, 2, 4, ... and i a multiple of 2 s: a number of the type of `p`, which is consumed."""
    return p.dtype.type(_native.sum_aligned(p))


@in_order("lanes", "sum", "dot", backend="native")
def lanes(x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """Lane l adds x[l], x[l+64], ... to +0.0, a binary tree the lanes: as a GPU block of 64 threads.

    Fixed by the length. Summing parts apart is another order.
    """
    return total(_native.sum_lanes, x, y, LANES)


@in_order("pairwise", "sum", "dot", backend="native")
def pairwise(x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """Halves, cut at multiples of 64, down to runs of at most 1024 in 64 lanes; error grows with log n.

    The first half of n terms has ceil(floor(n/2) / 64) * 64. Fixed by the length, as `lanes`.
    """
    return total(_native.sum_pairwise, x, y)


@in_order("kahan", "sum", backend="native")
def kahan(x: np.ndarray) -> np.floating:
    """Left to right, the error of each addition taken from the next element (Kahan 1965).

    One thread, so it repeats; what is lost when an element exceeds the sum before it depends on the order.
    """
    return total(_native.sum_kahan, x)


@in_order("neumaier", "sum", "dot", backend="native")
def neumaier(x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """Compensated, left to right (Neumaier 1974): as if with twice the digits, then rounded.

    One thread, so it repeats; the sum of the errors is itself rounded, so that a permutation can show.
    """
    return total(_native.sum_neumaier, x, y)


@in_order("dot2", "dot", backend="native")
def dot2(x: np.ndarray, y: np.ndarray) -> np.floating:
    """As if with twice the digits, then rounded (Ogita, Rump & Oishi 2005, algorithm 5.3, Dot2).

    The errors of the products, by fused multiply-add, and of the additions are added up apart, left to right: one
    thread, so it repeats, but their sum is itself rounded. Errors of products below the subnormals are lost.
    """
    return total(_native.dot2, x, y)


@in_order("block-tree", "sum", "dot", backend="native")
def block_tree(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """An aligned binary tree over blocks of 4096 elements, each summed in 64 lanes.

    Which elements meet is fixed by their index, so `threads`, which share the blocks, do not enter.
    """
    return aligned_tree(partial_sums(x, y, BLOCK, LANES, threads))


@in_order("omp-reduction", "sum", "dot", backend="native")
def omp_reduction(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """`reduction(+)` of OpenMP: `threads` sum a part each in 64 lanes, the parts meet as they come.

    Not fixed: OpenMP does not say in which order the partial sums are combined, nor by how many threads.
    """
    return total(_native.sum_omp_reduction, x, y, checked(threads))


@in_order("omp-ordered", "sum", "dot", backend="native")
def omp_ordered(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """`omp ordered`: `threads` equal parts, the first ones longer by one, in 64 lanes each, added left to right.

    Fixed by the length and the number of threads, along which the array is cut: another number gives other bits.
    """
    return total(_native.sum_omp_ordered, x, y, checked(threads))


@in_order("omp-atomic", "sum", "dot", backend="native")
def omp_atomic(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """One `omp atomic` per element, by `threads` interleaved by chance: not fixed."""
    return total(_native.sum_omp_atomic, x, y, checked(threads))
