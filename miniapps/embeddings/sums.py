"""Sums of rows: of the bags of samples, and of the gradients of each row.

`sorted`: from +0.0 by ascending place, which is the order of the samples of the whole batch and of the rows in a bag.
`exact`: each sum is rounded once. Both need all terms of a sum on one rank. `fixed-point`: integers in a unit that all
ranks agree on, rounded once, so that partial sums may be made anywhere and travel.
"""

from __future__ import annotations

import numpy as np

from kernels.exact import fixed_decode, fixed_encode, fixed_exponent
from kernels.scatter.native import by_bin, exact

ADDED = {"sorted": by_bin, "exact": exact}
ORDERS = (*ADDED, "fixed-point")


def added(x: np.ndarray, index: np.ndarray, bins: int, order: str) -> np.ndarray:
    """float32 (bins, columns): the rows of `x` (n, columns) added at `index` (n,), in an order of ADDED."""
    if not x.shape[1]:
        return np.zeros((bins, 0), np.float32)
    return ADDED[order](x, index, bins, threads=1)


def exponent(x: np.ndarray) -> int:
    """That of the unit which `x` needs, to be agreed on by MAX."""
    return int(fixed_exponent(x.reshape(1, -1)))


def words(x: np.ndarray, unit: int) -> np.ndarray:
    """int64 of the shape of `x`, float32, in the `unit` that was agreed on."""
    return fixed_encode(np.ascontiguousarray(x)[np.newaxis], unit)[0]


def words_added(x: np.ndarray, index: np.ndarray, bins: int) -> np.ndarray:
    """int64 (bins, columns): the rows of `x` int64 (n, columns) added at `index` (n,)."""
    out = np.zeros((bins, x.shape[1]), np.int64)
    if len(index):
        if (np.diff(index) < 0).any():
            order = np.argsort(index, kind="stable")
            x, index = x[order], index[order]
        first = np.flatnonzero(np.diff(index, prepend=index[0] - 1))
        out[index[first]] = np.add.reduceat(x, first, axis=0)
    return out


def rounded(x: np.ndarray, unit: int) -> np.ndarray:
    """float32 of the shape of `x`, int64 sums in that unit, each rounded once."""
    return fixed_decode(np.ascontiguousarray(x)[np.newaxis], unit, np.float32)
