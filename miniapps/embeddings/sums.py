"""Sums of the rows in a bag, and sums of the gradients of a row.

`sorted` adds from +0.0 by ascending place, in the order of the samples of the whole batch and of the rows in a bag; all
terms of a sum must be on one rank. `exact` rounds each sum once, so that it depends only on its own terms. Any rank may
compute partial sums, which are sent as words of 64 bits without rounding (`kernels.exact.Limbs`).
"""

from __future__ import annotations

import numpy as np

from kernels.scatter.native import by_bin, exact

ORDERS = {"sorted": by_bin, "exact": exact}


def added(x: np.ndarray, index: np.ndarray, bins: int, order: str) -> np.ndarray:
    """float32 (bins, columns): the rows of `x` (n, columns) added at `index` (n,), in an order of ORDERS."""
    if not x.shape[1]:
        return np.zeros((bins, 0), np.float32)
    return ORDERS[order](x, index, bins, threads=1)


def words_added(x: np.ndarray, index: np.ndarray, bins: int) -> np.ndarray:
    """int64 (bins, words, columns): the words of `x` int64 (n, words, columns) added at `index` (n,)."""
    out = np.zeros((bins, *x.shape[1:]), np.int64)
    if len(index):
        if (np.diff(index) < 0).any():
            order = np.argsort(index, kind="stable")
            x, index = x[order], index[order]
        first = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
        out[index[first]] = np.add.reduceat(x, first, axis=0)
    return out
