"""The sum of NumPy."""

from __future__ import annotations

import numpy as np

from kernels.registry import variant
from kernels.sums.reference import vector


@variant(
    "sum",
    "numpy",
    backend="numpy",
    guarantee="run",
    why="pairwise in one thread, in an order that belongs to NumPy and its version",
)
def library(x: np.ndarray) -> float:
    """`np.sum`: pairwise over runs of up to 128 elements, in one thread: it repeats, in NumPy's order."""
    with np.errstate(all="ignore"):
        return float(np.sum(vector(x)))
