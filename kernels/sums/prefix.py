"""Prefix sums of the columns of a matrix: correctly rounded, or added from the top to the bottom."""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.environment import guarded
from kernels.guarantees import known
from kernels.sums.elements import accumulator
from kernels.threads import checked

ORDERS = ("exact", "sorted")


@guarded
def prefix_sums(x: np.ndarray, order: str = "exact", threads: int = 0) -> np.ndarray:
    """Row i of the result is the sum of rows 0 ... i of x (n, columns), in the type of the accumulator of x.

    `exact`: each prefix is the exact sum, rounded once: the order of the rows up to it does not matter.
    `sorted`: from +0.0, one row after the other, one rounding per addition: the place in x fixes the order. `threads`
    share the columns, 0 for OpenMP's default; they do not change bits. Raises ChoiceError for another order, TypeError
    for another type, ValueError for another number of dimensions.
    """
    known("order of prefix sums", order, ORDERS)
    x = np.asarray(x)
    if x.ndim != 2:
        raise ValueError(f"prefix sums of an array of shape {x.shape}: (n, columns) is expected")
    out = np.array(x, dtype=accumulator(x.dtype), order="C")
    if order == "exact":
        _native.prefix_exact(out, checked(threads))
        return out
    with np.errstate(all="ignore"):
        np.add.accumulate(out, axis=0, out=out)
        out += 0.0  # removes the sign of a zero, as a sum that begins with +0.0
    return out
