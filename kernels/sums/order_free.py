"""Sums and dot products whose bits do not depend on the order of the additions, in C++.

Each element is converted to integers independently of the others, and the sum of the integers is rounded once, to the
type of the result. A product of float64 is added as p = fl(xy) and its error fl(xy - p), which are exact unless
|xy| < 2**-969; beyond the largest float64 it is an infinity, as in IEEE multiplication. Products of narrower types are
exact in float64. NaN and infinities follow IEEE rules; zero is +0.0. `threads`: threads of OpenMP, 0 for its default;
small arrays use fewer.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sums.native import total
from kernels.sums.orders import in_order
from kernels.threads import checked


@in_order("binned", "sum", "dot", backend="native")
def binned(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """Each element is rounded to 2**(40 (j-2)), where 2**(40 j - 1) <= max|x| < 2**(40 j + 39); one pass, order-free.

    Slices at multiples of 40 bits are added as integers; slices that are too low are dropped when a larger element
    comes. The error before the one rounding is at most len(x) * 2**(40 (j-2) - 1): len(x) * 2**-80 of the largest.
    """
    return total(_native.binned, x, y, checked(threads))


@in_order("fixed-point", "sum", "dot", backend="native")
def fixed_point(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """Each element is rounded to 2**(e-84), narrower types to 2**(e-42), with max|x| < 2**e: order-free.

    One pass, or two where the guess of e was wrong. The error before the one rounding is at most len(x) * 2**(e-85), or
    len(x) * 2**(e-43) for narrower types.
    """
    return total(_native.fixed_point, x, y, checked(threads))


@in_order("exact", "sum", "dot", backend="native")
def exactly(x: np.ndarray, y: np.ndarray | None = None, threads: int = 0) -> np.floating:
    """Correctly rounded by a superaccumulator: nothing is rounded before the end, so the order does not matter."""
    return total(_native.exact, x, y, checked(threads))
