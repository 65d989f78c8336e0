"""The sizes of an array: the count of its numbers, the sum and the largest of their absolute values, and four signed
sums.

From the sizes of two arrays follows how far the arrays are apart, without the arrays. With d = a - b, elementwise,

    |p_k(a) - p_k(b)| <= sum |d_i|                 for each of the four sums p_k
    E[(p_k(a) - p_k(b))^2] = sum d_i^2             over random signs, which a fixed hash stands for

(Alon, Matias & Szegedy 1996). For arrays of up to KEPT numbers, p_k is number k itself.

Signed sums are compensated: with n numbers and u = 2^-53 the error of p_k is at most u |p_k| + (n u / 8)^2 l1 (Ogita,
Rump & Oishi 2005): half an ulp of p_k, and a part far below an ulp of l1. `sizes` computes in C++, `defined` in NumPy;
both give the same bits on every machine.

A complex number counts as two. Integers above 2^53 are rounded to float64. Where a number is NaN, l1 and largest are
NaN; where one is infinite and none NaN, both are infinite. Where l1 is not finite, the signed sums of more than KEPT
numbers are NaN.
"""

from __future__ import annotations

import functools
import math

import numpy as np

KEPT = 4  # arrays of at most so many numbers are kept whole
COLUMNS = ("l1", "largest", "p0", "p1", "p2", "p3")
LANES, BLOCK = 8, 64
# Unit roundoffs by type. A long double is recorded as float64.
UNITS = {"float64": 2.0**-53, "complex128": 2.0**-53, "float32": 2.0**-24, "complex64": 2.0**-24, "float16": 2.0**-11,
         "bfloat16": 2.0**-8, "longdouble": 2.0**-53, "clongdouble": 2.0**-53}  # fmt: skip
# The types that the C++ code reads; others become float64.
DIRECT = ("float64", "float32", "float16", "bfloat16", "bool",
          *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))  # fmt: skip


def sizes(arrays: np.ndarray) -> tuple[int, np.ndarray] | None:
    """The sizes of `arrays[0]`, `arrays[1]`, ...: (numbers in each, float64 (n, 6) with the columns COLUMNS); None for
    a dtype that has no numbers."""
    from kernels import _native  # reading traces, and `doctor`, need no C++

    rows = numbers(arrays)
    if rows is None:
        return None
    return rows.shape[1], _native.sizes(rows.view(np.uint8), dtype_name(rows.dtype), *rows.shape)


def defined(arrays: np.ndarray) -> tuple[int, np.ndarray] | None:
    """The definition of `sizes` in NumPy, one row of lanes after the other."""
    rows = numbers(arrays)
    if rows is None:
        return None
    with np.errstate(all="ignore"):
        return rows.shape[1], np.array([_defined(row) for row in rows.astype(np.float64)]).reshape(-1, 6)


def numbers(arrays: np.ndarray) -> np.ndarray | None:
    """The numbers of `arrays[0]`, `arrays[1]`, ..., row by row, in a dtype of DIRECT; None for a dtype without any."""
    arrays = np.ascontiguousarray(arrays)
    dtype = arrays.dtype
    rows = arrays.reshape(len(arrays), math.prod(arrays.shape[1:]))
    narrow = dtype.kind == "V" and dtype.type.__module__ == "ml_dtypes"  # bfloat16, float8_e4m3fn, int4, ...
    if dtype.kind in "biuf" or narrow:
        direct = rows.astype(dtype.newbyteorder("="), copy=False)
        if dtype_name(dtype) in DIRECT:
            return direct
        with np.errstate(all="ignore"):  # a long double may be beyond float64
            return direct.astype(np.float64)
    if dtype.kind == "c":
        part = np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
        return numbers(rows.view(part))
    return None


@functools.cache
def dtype_name(dtype: np.dtype) -> str:
    """`dtype.name`, cached: NumPy builds the text at each call."""
    return dtype.name


def signs(count: int, k: int) -> np.ndarray:
    """The signs of `count` numbers in the signed sum `k`: float64 (count,)."""
    i = np.arange(count)
    words = _mixed(4 * (i // BLOCK).astype(np.uint64) + np.uint64(k))
    bits = words >> (8 * (i % LANES) + i % BLOCK // LANES).astype(np.uint64) & np.uint64(1)
    return np.where(bits == 1, -1.0, 1.0)


def _defined(row: np.ndarray) -> list[float]:
    """The six sizes of one row of float64."""
    count, size = len(row), np.abs(row)
    if count <= KEPT:
        l1 = sum(size[1:].tolist(), size[0]) if count else 0.0
        kept = [*row.tolist(), *[0.0] * (KEPT - count)]
        return [*_together(l1, size), *kept]
    lanes = -(-count // LANES)
    padded = np.zeros(lanes * LANES)
    padded[:count] = size
    by_lane = np.zeros(LANES)
    for part in padded.reshape(-1, LANES):
        by_lane = by_lane + part
    l1, largest = _together(sum(by_lane.tolist(), 0.0), size)
    if not np.isfinite(l1):
        return [l1, largest, *[np.nan] * 4]
    sums = []
    for k in range(4):
        padded[:count] = row * signs(count, k)
        total, error = np.zeros(LANES), np.zeros(LANES)
        for part in padded.reshape(-1, LANES):
            total, lost = _two_sum(total, part)
            error = error + lost
        whole, rest = 0.0, 0.0
        for j in range(LANES):
            whole, lost = _two_sum(whole, float(total[j]))
            rest += lost + float(error[j])
        sums.append(whole + rest)
    return [l1, largest, *sums]


def _together(l1: float, size: np.ndarray) -> tuple[float, float]:
    """(l1, largest), both NaN where a number is NaN."""
    return (np.nan, np.nan) if np.isnan(size).any() else (l1, float(size.max(initial=0.0)))


def _two_sum(a, b):
    """(a + b rounded, its rounding error), of floats or arrays (Knuth 1969)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _mixed(words: np.ndarray) -> np.ndarray:
    """uint64 `words` mixed by the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
