"""NumPy's sum and dot product. They add +0.0, since NumPy may return -0.0 for negative zeros."""

from __future__ import annotations

import numpy as np

from kernels.sums.elements import vector, vectors, widened
from kernels.sums.orders import in_order


@in_order("numpy", "sum", backend="numpy")
def library(x: np.ndarray) -> np.floating:
    """`np.sum`: pairwise over runs of up to 128 elements, in one thread, so it repeats, in NumPy's order.

    float16 and bfloat16 are converted to float32 first.
    """
    with np.errstate(all="ignore"):
        return np.sum(widened(vector(x))) + 0.0


@in_order("numpy", "dot", backend="numpy")
def dot_library(x: np.ndarray, y: np.ndarray) -> np.floating:
    """`np.dot`: the dot product of NumPy's BLAS, which divides it among its threads.

    float16 and bfloat16 are converted to float32 first.
    """
    x, y = vectors(x, y)
    with np.errstate(all="ignore"):
        return np.dot(widened(x), widened(y)) + 0.0
