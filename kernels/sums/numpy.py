"""The sum of NumPy."""

from __future__ import annotations

import numpy as np

from kernels.sums.elements import vector
from kernels.sums.orders import in_order


@in_order("numpy", "sum", backend="numpy")
def library(x: np.ndarray) -> float:
    """`np.sum`: pairwise over runs of up to 128 elements, in one thread: it repeats, in NumPy's order."""
    with np.errstate(all="ignore"):
        return float(np.sum(vector(x)))
