"""The definition of a sum and of a dot product."""

from __future__ import annotations

import numpy as np

from kernels.sums.elements import vector, vectors, widened
from kernels.sums.orders import in_order


@in_order("reference", "sum", backend="reference")
def left_to_right(x: np.ndarray) -> np.floating:
    """Left to right from +0.0, one rounding per addition. The order of the elements alone determines the bits."""
    x = widened(vector(x))
    with np.errstate(all="ignore"):
        return np.cumsum(x)[-1] + x.dtype.type(0) if len(x) else x.dtype.type(0)


@in_order("reference", "dot", backend="reference")
def dot_left_to_right(x: np.ndarray, y: np.ndarray) -> np.floating:
    """The rounded products, added left to right from +0.0."""
    x, y = vectors(x, y)
    with np.errstate(all="ignore"):
        return left_to_right(widened(x) * widened(y))
