"""Sums whose bits do not depend on the order of the additions, in C++."""

from __future__ import annotations

import numpy as np

from kernels import exact
from kernels.exact.reference import LIMB, nearest
from kernels.sums.elements import vector
from kernels.sums.orders import in_order


@in_order("fixed-point", "sum", backend="native")
def fixed_point(x: np.ndarray) -> float:
    """Multiples of 2**(e-84), with max|x| < 2**e, added as integers and rounded once: free of order.

    Off by at most len(x) * 2**(e-85) before that rounding. NaN and infinities by IEEE rules; zero is +0.0.
    """
    x = vector(x)
    part = exact.MAX_CONTRIBUTIONS
    exponent = int(exact.fixed_exponent(x, min(len(x), part)))
    if exponent == exact.NONFINITE:
        return exactly(x)
    total = 0
    for start in range(0, len(x), part):
        high, low = exact.fixed_encode(x[start : start + part], exponent).tolist()
        total += (high << LIMB) + low
    return nearest(total, exponent - 2 * LIMB)


@in_order("exact", "sum", backend="native")
def exactly(x: np.ndarray) -> float:
    """Correctly rounded by a superaccumulator: nothing is rounded before the end, so no order can show."""
    words = exact.zeros()
    exact.add(words, vector(x))
    return float(exact.round(words))
