"""Means over ranks: the sum is divided before it is rounded to the type of its terms.

So a mean is found where the sum would overflow, and no sum is rounded before the division.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.allreduce.accumulate import narrowed
from kernels.allreduce.operations import SUM, Operation

MOST = (1 << 24) - 1  # the largest divisor of `exact_mean`


def mean_of(divisor: int) -> Operation:
    """The operation that returns the exact sum of all contributions over `divisor`, rounded once, in any order. For
    orderings in which one rank has all contributions to an element at once, such as `direct`."""

    def prepare(sources, out):
        return lambda: _native.exact_mean(list(sources), divisor, out)

    return Operation("mean", SUM.function, SUM.identity, prepare=prepare)


def divided(total: np.ndarray, divisor: int, dtype: np.dtype) -> np.ndarray:
    """`total`, float64 or float32, over `divisor`, rounded to its type and then to `dtype`."""
    with np.errstate(all="ignore"):
        mean = total / total.dtype.type(divisor)
    if mean.dtype == dtype:
        return mean
    return narrowed(mean.astype(np.float64, copy=False), dtype)
