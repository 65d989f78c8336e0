"""Sums in rational arithmetic, rounded once: the exact bits of every element."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
# Digits of the significand and the exponent of the least number.
FORMATS = {"float64": (53, -1074), "float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}


def rational_sum(column: np.ndarray, divisor: int = 1, to: np.dtype | None = None) -> np.ndarray:
    """The exact sum of `column` (k,) over `divisor`, rounded once to nearest even: (1,) of the type `to`, by default
    its own. Zero is +0; infinities and NaN by the rules of IEEE 754, NaN for a divisor of 0."""
    to = column.dtype if to is None else to
    with np.errstate(invalid="ignore"):
        values = column.astype(np.float64).tolist()
    special = {value for value in values if math.isinf(value)} | {
        math.nan for value in values if math.isnan(value)
    }
    if not divisor:
        value = math.nan
    elif special:
        value = special.pop() if len(special) == 1 else math.nan
    else:
        digits, least = FORMATS[to.name]
        value = nearest(sum(map(Fraction, values), Fraction(0)) / divisor, digits, least)
        if abs(value) > float(ml_dtypes.finfo(to).max):
            value = math.copysign(math.inf, value)
    return np.array([value]).astype(to)


def nearest(x: Fraction, digits: int, least: int) -> float:
    """`x` to the nearest multiple of the unit of its binade, ties to even; an infinity beyond all float64."""
    if not x:
        return 0.0
    size = abs(x)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1  # 2^exponent <= |x| < 2^(exponent + 1)
    unit = max(exponent + 1 - digits, least)
    multiple = round(size / Fraction(2) ** unit)  # half to even
    try:
        value = math.ldexp(multiple, unit)
    except OverflowError:
        value = math.inf
    return value if x > 0 else -value
