"""Order-free accumulators and sums in NumPy and Python integers: short, slow, the reference for tests of the C++.

All arithmetic on sums is integer arithmetic, so results do not depend on the order or on rounding modes.
`kernels.exact.superaccumulator` describes the words.
"""

from __future__ import annotations

import builtins
import math
from fractions import Fraction

import numpy as np

CHUNKS = 67
NAN, PINF, NINF = CHUNKS, CHUNKS + 1, CHUNKS + 2
WORDS = CHUNKS + 3
LOWEST = -1075  # chunk i counts multiples of 2**(32 i + LOWEST)

LIMB = 42  # bits of one limb of the fixed-point sum
LEVEL = 40  # bits between the levels of the binned sum, which keeps three
LOWEST_BIT = -1074  # all float64 are multiples of 2**-1074

DIGITS = {np.dtype(np.float64): (53, -1074), np.dtype(np.float32): (24, -149)}  # precision, lowest bit


def carry(words: np.ndarray) -> None:
    """Normalises in place: chunks 0 ... 65 in [0, 2**32), the sign in chunk 66. Each value has one such form."""
    for i in range(CHUNKS - 1):
        words[..., i + 1] += words[..., i] >> 32
        words[..., i] &= 0xFFFFFFFF


def add(words: np.ndarray, x: np.ndarray) -> None:
    """Adds float64 `x` (k, *shape) over axis 0 to contiguous `words` (*shape, WORDS), in place."""
    x = np.ascontiguousarray(x)
    flat = words.reshape(-1, WORDS)
    columns = np.arange(len(flat))
    for start in range(0, len(x), 512):  # 512 deposits below 2**53 fit beside the sum of 2**20 ranks' words
        rows = x[start : start + 512]
        bits = rows.view(np.int64).reshape(len(rows), len(flat))
        _deposit(flat, bits, np.broadcast_to(columns, bits.shape))
        carry(flat)
    carry(flat)


def _deposit(words: np.ndarray, bits: np.ndarray, column: np.ndarray) -> None:
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & (2**52 - 1)
    sign = np.where(bits < 0, -1, 1)

    special = exponent == 0x7FF
    flag = np.where(fraction != 0, NAN, np.where(bits < 0, NINF, PINF))
    np.add.at(words, (column[special], flag[special]), 1)

    mantissa = np.where(special, 0, fraction + np.where(exponent > 0, 2**52, 0))
    exponent = np.where(special, 1, np.maximum(exponent, 1))
    chunk, shift = exponent >> 5, exponent & 31
    np.add.at(words, (column, chunk), sign * ((mantissa << shift) & 0xFFFFFFFF))
    np.add.at(words, (column, chunk + 1), sign * (mantissa >> (32 - shift)))


def add_products(words: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Adds the products of float64 `a` and `b` (n,) to `words` (WORDS,), each as p = fl(ab) and fl(ab - p)."""
    with np.errstate(all="ignore"):
        p = a * b
    add(words, p)
    add(
        words, np.array([_error(*abp) for abp in zip(a.tolist(), b.tolist(), p.tolist(), strict=True)], float)
    )


def _error(a: float, b: float, p: float) -> float:
    """fma(a, b, -p); 0 where p is a NaN or an infinity."""
    return float(Fraction(a) * Fraction(b) - Fraction(p)) if math.isfinite(p) else 0.0


def round(words: np.ndarray, dtype=np.float64) -> np.ndarray:
    """The sums in `words` (*shape, WORDS), rounded once to nearest even: `dtype` (*shape,)."""
    sums = [_value(w, dtype) for w in words.reshape(-1, WORDS).tolist()]
    return np.array(sums, dtype=dtype).reshape(words.shape[:-1])


def _value(words: list[int], dtype) -> float:
    if words[NAN] or (words[PINF] and words[NINF]):
        return math.nan
    if words[PINF] or words[NINF]:
        return math.inf if words[PINF] else -math.inf
    return nearest(sum(c << (32 * i) for i, c in enumerate(words[:CHUNKS])), LOWEST, dtype)


def nearest(integer: int, exponent: int, dtype=np.float64) -> float:
    """integer * 2**exponent rounded once, to nearest even, to a number of `dtype` (float32 or float64)."""
    digits, lowest = DIGITS[np.dtype(dtype)]
    magnitude = abs(integer)
    drop = max(magnitude.bit_length() - digits, lowest - exponent, 0)
    kept, rest = magnitude >> drop, magnitude & ((1 << drop) - 1)
    half = (1 << drop) >> 1
    kept += rest > half or (rest == half != 0 and kept & 1)
    try:
        value = math.ldexp(kept, exponent + drop)
    except OverflowError:
        value = math.inf
    if value > float(np.finfo(dtype).max):
        value = math.inf
    return -value if integer < 0 else value


def order_free_sum(name: str, x: np.ndarray, y: np.ndarray | None = None) -> np.floating:
    """The `binned`, `fixed-point` or `exact` sum of `x`, or of the products of `x` and `y` (n,).

    Every term is rounded to a multiple of one unit, ties to even. Their sum is rounded to float64 for float64, to
    float32 for narrower types. The unit of `exact` divides all numbers.
    """
    wide = x.dtype == np.float64
    dtype: np.dtype = np.dtype(np.float64 if wide else np.float32)
    terms = _terms(x, y)
    special = [t for t in terms if not math.isfinite(t)]
    if special:
        return dtype.type(special[0] if set(special) in ({math.inf}, {-math.inf}) else math.nan)
    exponent = math.frexp(max(map(abs, terms), default=0.0))[1]
    units = {
        "binned": LEVEL * (exponent // LEVEL - 2),
        "fixed-point": exponent - LIMB * (2 if wide else 1),
        "exact": LOWEST_BIT,
    }
    unit = max(units[name], LOWEST_BIT)
    scale = Fraction(2) ** -unit
    return dtype.type(nearest(sum(builtins.round(Fraction(t) * scale) for t in terms), unit, dtype))


def _terms(x: np.ndarray, y: np.ndarray | None) -> list[float]:
    with np.errstate(all="ignore"):
        if y is None:
            return x.astype(np.float64).tolist()
        products = x.astype(np.float64) * y.astype(np.float64)
    errors = map(_error, x.tolist(), y.tolist(), products.tolist()) if x.dtype == np.float64 else ()
    return [*products.tolist(), *errors]
