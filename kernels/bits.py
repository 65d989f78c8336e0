"""Compares arrays of floating-point numbers: by bits, by units in the last place, and by published metrics.

Arrays of float32, float16 and bfloat16 keep their type; all others are converted to float64.

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

Undefined terms are NaN; means and maxima leave them out, and their number is reported beside. V_c and ULP are zero if
and only if the bits are equal. V_s and V_ermv can be zero for different bits, so reports add the number of distinct
bit patterns.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

# Types whose ULP distance is counted in their own bits, with the unsigned integers of the same width.
WORDS = {
    np.dtype(np.float64): np.uint64,
    np.dtype(np.float32): np.uint32,
    np.dtype(np.float16): np.uint16,
    np.dtype(ml_dtypes.bfloat16): np.uint16,
}


def floating(x: np.ndarray | float) -> np.ndarray:
    """`x` in the type whose bits are compared: its own if it is an array of a type in WORDS, else float64."""
    return np.asarray(x, x.dtype if isinstance(x, np.ndarray) and x.dtype in WORDS else np.float64)


def words(x: np.ndarray | float) -> np.ndarray:
    """The bits of `x` as unsigned integers of the same width and shape: uint64 for float64."""
    x = floating(x)
    return x.view(WORDS[x.dtype])


def differ(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """Whether the bits differ, elementwise: bool, in the shape of `a` and `b`, which must have one type."""
    return words(a) != words(b)


def ulp_distance(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """The distance from `a` to `b` in representable numbers of their type: float64, NaN where undefined, exact below
    2**53.

    -0.0 and +0.0 are neighbours, so a distance of zero means equal bits.
    """
    low, high = ranks(a), ranks(b)
    distance = np.where(low > high, low - high, high - low).astype(np.float64)
    return np.where((np.isnan(a) | np.isnan(b)) & differ(a, b), np.nan, distance)


def relative_difference(a: np.ndarray | float, b: np.ndarray | float) -> np.ndarray:
    """The term of V_ermv, |A - B| / |A| elementwise in float64; NaN where undefined."""
    equal = ~differ(a, b)
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    with np.errstate(all="ignore"):
        ratio = np.abs(a - b) / np.abs(a)
    return np.where(equal | ((a == 0) & (b == 0)), 0.0, ratio)


def v_s(reference: np.ndarray, x: np.ndarray) -> np.ndarray:
    """V_s = 1 - |x / reference| elementwise; NaN where undefined. It ignores the sign, as published.

    Computed as (|reference| - |x|) / |reference|, whose numerator is exact for near numbers."""
    a, b = np.abs(np.asarray(reference, np.float64)), np.abs(np.asarray(x, np.float64))
    with np.errstate(all="ignore"):
        ratio = np.where(np.isinf(a) & np.isfinite(b), 1.0, (a - b) / a)
    return np.where((a == b) | ~differ(reference, x), 0.0, ratio)


def v_ermv(a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Elementwise relative mean absolute variation of `b` against `a` over the last axis, and the number of undefined
    terms, which the mean leaves out."""
    terms = relative_difference(a, b)
    return mean(terms), np.isnan(terms).sum(axis=-1)


def bound(trials: int, confidence: float = 0.95) -> float:
    """Upper confidence bound of the probability of a difference per trial, after `trials` trials without one:
    1 - (1 - confidence) ** (1 / trials), about 3 / trials at 95 %."""
    return 1 - (1 - confidence) ** (1 / trials)


def mean(x: np.ndarray) -> np.ndarray:
    """The mean of the defined (not NaN) elements along the last axis; NaN where there are none."""
    defined = ~np.isnan(x)
    with np.errstate(invalid="ignore"):
        return np.where(defined, x, 0.0).sum(axis=-1) / defined.sum(axis=-1)


def largest(x: np.ndarray) -> np.ndarray:
    """The maximum of the defined (not NaN) elements along the last axis; NaN where there are none."""
    defined = ~np.isnan(x)
    return np.where(defined.any(axis=-1), np.where(defined, x, -np.inf).max(axis=-1), np.nan)


def ranks(x: np.ndarray | float) -> np.ndarray:
    """Maps numbers to unsigned integers in ascending order: neighbouring numbers of the type differ by 1. NaNs lie
    beyond the infinity of their sign."""
    bits = words(x)
    sign = _sign(bits.dtype)
    return np.where(bits & sign, ~bits, bits | sign)


def numbers(ranks: np.ndarray) -> np.ndarray:
    """The inverse of `ranks` for float64."""
    sign = _sign(ranks.dtype)
    return np.where(ranks & sign, ranks ^ sign, ~ranks).view(np.float64)


def _sign(words: np.dtype) -> np.unsignedinteger:
    """The word in which the sign bit alone is set."""
    return words.type(1 << (8 * words.itemsize - 1))
