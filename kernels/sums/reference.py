"""The definition of a sum, and the check of what may be summed."""

from __future__ import annotations

import numpy as np

from kernels.registry import variant


def vector(x: np.ndarray) -> np.ndarray:
    """`x` if it is a float64 array of one dimension; raises TypeError or ValueError otherwise."""
    x = np.asarray(x)
    if x.dtype != np.float64:
        raise TypeError(f"cannot sum {x.dtype}: convert it to float64")
    if x.ndim != 1:
        raise ValueError(f"cannot sum an array of shape {x.shape}: one dimension is expected, see ravel()")
    return x


@variant("sum", "reference", backend="reference", guarantee="run", why="left to right, from +0.0")
def left_to_right(x: np.ndarray) -> float:
    """Left to right from +0.0, one rounding per addition. Fixed by the order of the elements alone."""
    with np.errstate(all="ignore"):
        return float(np.cumsum(vector(x))[-1] + 0.0) if len(x) else 0.0
