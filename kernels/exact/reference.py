"""Order-free accumulators in plain NumPy and Python integers: slow, short, and what the C++ is tested against.

The arithmetic is integer arithmetic throughout, so nothing here depends on an order or on rounding modes.
Shapes and meaning of the words are in `kernels.exact`.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

CHUNKS = 67
NAN, PINF, NINF = CHUNKS, CHUNKS + 1, CHUNKS + 2
WORDS = CHUNKS + 3
LOWEST = -1075  # chunk i counts multiples of 2**(32 i + LOWEST)

HEADROOM = 20  # bits: 2**20 contributions fit
STEP = 42  # bits of one limb of the fixed-point form


def carry(words: np.ndarray) -> None:
    """Bring chunks 0 ... 65 into [0, 2**32), the sign into chunk 66: each value has one such form."""
    for i in range(CHUNKS - 1):
        words[..., i + 1] += words[..., i] >> 32
        words[..., i] &= 0xFFFFFFFF


def add(words: np.ndarray, x: np.ndarray) -> None:
    """Add float64 `x` (k, *shape) over axis 0 to `words` (*shape, WORDS), in place."""
    for start in range(0, len(x), 1024):  # 1024 deposits of less than 2**53 fit beside words from 2**20 ranks
        _deposit(words, x[start : start + 1024])
        carry(words)
    if len(x) == 0:
        carry(words)


def add_products(words: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Add the products of float64 `a` and `b` (n,) to `words` (WORDS,), each as p = fl(ab) and fl(ab - p)."""
    with np.errstate(all="ignore"):
        p = a * b
        error = np.array(
            [_product_error(*abp) for abp in zip(a.tolist(), b.tolist(), p.tolist(), strict=True)]
        )
    add(words, p)
    add(words, error.reshape(-1))


def _product_error(a: float, b: float, p: float) -> float:
    """What fma(a, b, -p) gives where p is finite; 0 where it is not, for p has then said all there is to say."""
    return float(Fraction(a) * Fraction(b) - Fraction(p)) if math.isfinite(p) else 0.0


def _deposit(words: np.ndarray, x: np.ndarray) -> None:
    bits = np.ascontiguousarray(x, dtype=np.float64).reshape(len(x), -1).view(np.int64)
    column = np.broadcast_to(np.arange(bits.shape[1]), bits.shape)
    flat = words.reshape(-1, WORDS)
    if not np.shares_memory(flat, words):
        raise ValueError("words must be contiguous")
    exponent = (bits >> 52) & 0x7FF
    fraction = bits & (2**52 - 1)
    sign = np.where(bits < 0, -1, 1)

    special = exponent == 0x7FF
    flag = np.where(fraction != 0, NAN, np.where(bits < 0, NINF, PINF))
    np.add.at(flat, (column[special], flag[special]), 1)

    mantissa = np.where(special, 0, fraction + np.where(exponent > 0, 2**52, 0))
    exponent = np.where(special, 1, np.maximum(exponent, 1))
    chunk, shift = exponent >> 5, exponent & 31
    np.add.at(flat, (column, chunk), sign * ((mantissa << shift) & 0xFFFFFFFF))
    np.add.at(flat, (column, chunk + 1), sign * (mantissa >> (32 - shift)))


def round(words: np.ndarray) -> np.ndarray:
    """The sums in `words` (*shape, WORDS), rounded to nearest even, float64 (*shape,)."""
    flat = words.reshape(-1, WORDS).tolist()
    return np.array([_value(w) for w in flat], dtype=np.float64).reshape(words.shape[:-1])


def _value(words: list[int]) -> float:
    if words[NAN] or (words[PINF] and words[NINF]):
        return math.nan
    if words[PINF] or words[NINF]:
        return math.inf if words[PINF] else -math.inf
    return nearest(sum(c << (32 * i) for i, c in enumerate(words[:CHUNKS])), LOWEST)


def nearest(integer: int, exponent: int) -> float:
    """integer * 2**exponent, rounded once to float64 (Python divides integers with a single rounding)."""
    try:
        return (integer << exponent) / 1 if exponent >= 0 else integer / (1 << -exponent)
    except OverflowError:
        return math.inf if integer > 0 else -math.inf
