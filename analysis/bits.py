"""What "different" means for two float64 arrays: their bits, units in the last place, and the published
metrics.

The metrics are those of Shanmugavelu et al. (arXiv 2408.05148), whose formulas leave some cases open. Here:

| case | V_s | V_ermv term | V_c | ULP |
|---|---|---|---|---|
| equal bits, NaN and infinities included | 0 | 0 | equal | 0 |
| +0.0 against -0.0 | 0 | 0 | differs | 1 |
| equal magnitude, opposite sign | 0 | 2 | differs | counted through zero |
| A = 0, B not | -inf | inf | differs | counted |
| A finite, B infinite | -inf | inf | differs | counted; the largest finite number is 1 from inf |
| A infinite, B finite | 1 | undefined | differs | counted |
| NaN on one side, or other NaN bits | undefined | undefined | differs | undefined |

Undefined terms are NaN, never enter a mean or a maximum, and are counted beside it. V_c and ULP are zero if
and only if the bits are equal; V_s and V_ermv are not, which is why distinct bit patterns are reported
beside them.
"""

from __future__ import annotations

import numpy as np

_SIGN = np.uint64(1 << 63)


def words(x: np.ndarray) -> np.ndarray:
    """The bits of float64 `x` as uint64 of the same shape."""
    return np.asarray(x, np.float64).view(np.uint64)


def differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Whether the bits differ, elementwise: bool, of the shape of float64 `a` and `b`."""
    return words(a) != words(b)


def ulp_distance(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """How many float64 numbers lie from `a` to `b`: float64, NaN where undefined, exact below 2**53.

    -0.0 and +0.0 are neighbours, so that zero means equal bits.
    """
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    low, high = ranks(a), ranks(b)
    distance = np.where(low > high, low - high, high - low).astype(np.float64)
    return np.where((np.isnan(a) | np.isnan(b)) & differ(a, b), np.nan, distance)


def relative_difference(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """|A - B| / |A| elementwise, the term of V_ermv; NaN where undefined."""
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(all="ignore"):
        ratio = np.abs(a - b) / np.abs(a)
    return np.where(~differ(a, b) | ((a == 0) & (b == 0)), 0.0, ratio)


def v_s(reference: np.ndarray, x: np.ndarray) -> np.ndarray:
    """V_s = 1 - |x / reference| elementwise, as (|reference| - |x|) / |reference|, whose numerator is exact
    for near numbers; NaN where undefined. Blind to the sign, as published."""
    a, b = np.abs(np.asarray(reference, np.float64)), np.abs(np.asarray(x, np.float64))
    with np.errstate(all="ignore"):
        ratio = np.where(np.isinf(a) & np.isfinite(b), 1.0, (a - b) / a)
    return np.where((a == b) | ~differ(reference, x), 0.0, ratio)


def v_ermv(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elementwise relative mean absolute variation of `b` against `a` over the last axis, and how many terms
    were undefined and left out of the mean."""
    terms = relative_difference(a, b)
    return mean(terms), np.isnan(terms).sum(axis=-1)


def mean(x: np.ndarray) -> np.ndarray:
    """The mean of the defined (not NaN) elements along the last axis; NaN where there are none."""
    defined = ~np.isnan(x)
    with np.errstate(invalid="ignore"):
        return np.where(defined, x, 0.0).sum(axis=-1) / defined.sum(axis=-1)


def largest(x: np.ndarray) -> np.ndarray:
    """The maximum of the defined (not NaN) elements along the last axis; NaN where there are none."""
    defined = ~np.isnan(x)
    return np.where(defined.any(axis=-1), np.where(defined, x, -np.inf).max(axis=-1), np.nan)


def ranks(x: np.ndarray) -> np.ndarray:
    """uint64 that grow with the number `x` stands for: 1 from each float64 to the next. NaNs lie outside of the
    infinities, by sign."""
    bits = words(x)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def numbers(ranks: np.ndarray) -> np.ndarray:
    """The float64 whose `ranks` these are."""
    return np.where(ranks & _SIGN, ranks ^ _SIGN, ~ranks).view(np.float64)
