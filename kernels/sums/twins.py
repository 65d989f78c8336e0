"""The twins, in C++ on the CPU, of the GPU's deterministic sums: the same tree, hence the same bits.

The launch shape fixes the tree (`kernels.sums.launch`): thread blocks of `block` threads, at least `items` elements
for each, at most `grid` blocks. `threads`, of OpenMP, share the blocks and do not enter.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sums import native
from kernels.sums.launch import BLOCK, GRID, ITEMS, shape
from kernels.sums.native import aligned_tree, total
from kernels.sums.orders import in_order


def partial_sums(
    x, y=None, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.ndarray:
    """The sums of the thread blocks, (blocks,) of the accumulator's type: of `x`, or of its products with `y`."""
    launched = shape(np.size(x), block, items, grid)
    return native.partial_sums(x, y, launched.segment, launched.block, threads)


@in_order("sptr", "sum", backend="native")
def sptr(
    x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """A tree in each block, then one in the last block: as it adds the partial sums by index, it is fixed."""
    return total(_native.sum_lanes, partial_sums(x, None, block, items, grid, threads), None, block)


@in_order("sptr", "dot", backend="native")
def dot_sptr(
    x: np.ndarray, y: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """The rounded products in the order of `sptr`, fixed by the launch shape."""
    return total(_native.sum_lanes, partial_sums(x, y, block, items, grid, threads), None, block)


@in_order("sprg", "sum", backend="native")
def sprg(
    x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """A tree in each block, then the partial sums left to right, on the device: fixed by the launch shape."""
    return total(_native.sum_left_to_right, partial_sums(x, None, block, items, grid, threads))


@in_order("sprg", "dot", backend="native")
def dot_sprg(
    x: np.ndarray, y: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """The rounded products in the order of `sprg`, fixed by the launch shape."""
    return total(_native.sum_left_to_right, partial_sums(x, y, block, items, grid, threads))


@in_order("tprc", "sum", backend="native")
def tprc(
    x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """As `sprg`, the partial sums left to right on the host: the same bits, by two passes."""
    return total(_native.sum_left_to_right, partial_sums(x, None, block, items, grid, threads))


@in_order("sp-pairwise", "sum", backend="native")
def sp_pairwise(
    x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """A tree in each block, then an aligned binary tree over the partial sums: fixed by the launch shape."""
    return aligned_tree(partial_sums(x, None, block, items, grid, threads))


@in_order("sp-neumaier", "sum", backend="native")
def sp_neumaier(
    x: np.ndarray, block: int = BLOCK, items: int = ITEMS, grid: int = GRID, threads: int = 0
) -> np.floating:
    """A tree in each block, then Neumaier's sum of the partial sums, left to right: fixed by the launch shape."""
    return total(_native.sum_neumaier, partial_sums(x, None, block, items, grid, threads))
