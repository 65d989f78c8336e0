"""Twins of the GPU's deterministic sums in C++ on the CPU: the same trees, hence the same bits.

The launch shape fixes the tree (`kernels.sums.launch`): at most `grid` thread blocks of `block` threads, at least
`items` elements per thread. `threads` of OpenMP share the blocks and do not change bits.
"""

from __future__ import annotations

from collections.abc import Callable

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


def _register(name: str, operations: list[str], finish: Callable[[np.ndarray, int], np.floating]) -> None:
    @in_order(name, *operations, backend="native")
    def twin(
        x: np.ndarray, y: np.ndarray | None = None, block: int = BLOCK, items: int = ITEMS, grid: int = GRID,
        threads: int = 0,
    ) -> np.floating:  # fmt: skip
        """A tree in each block, then a fixed order of the partial sums, by index; the launch shape fixes both."""
        return finish(partial_sums(x, y, block, items, grid, threads), block)


# `sprg` adds the partial sums on the device and `tprc` on the host: the same bits.
_register("sptr", ["sum", "dot"], lambda p, block: total(_native.sum_lanes, p, None, block))
_register("sprg", ["sum", "dot"], lambda p, _: total(_native.sum_left_to_right, p))
_register("tprc", ["sum"], lambda p, _: total(_native.sum_left_to_right, p))
_register("sp-pairwise", ["sum"], lambda p, _: aligned_tree(p))
_register("sp-neumaier", ["sum"], lambda p, _: total(_native.sum_neumaier, p))
