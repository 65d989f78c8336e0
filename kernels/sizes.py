"""The sizes of an array: the count of its numbers, the sum and the largest of their absolute values, and four signed
sums.

From the sizes of two arrays follows how far the arrays are apart, without the arrays. With d = a - b, elementwise,

    |p_k(a) - p_k(b)| <= sum |d_i|                 for each of the four sums p_k
    E[(p_k(a) - p_k(b))^2] = sum d_i^2             over random signs, which a fixed hash stands for

(Alon, Matias & Szegedy 1996). For arrays of up to KEPT numbers, p_k is number k itself.

Signed sums are compensated: with n numbers and u = 2^-53 the error of p_k is at most u |p_k| + (n u / 8)^2 l1 (Ogita,
Rump & Oishi 2005): half an ulp of p_k, and a part far below an ulp of l1. Numbers of at most 32 bits are added eight at
a time without compensation, which adds at most 4 u l1, 2^-27 units of float32 of l1. `sizes` computes in C++, `defined`
in NumPy; both give the same bits on every machine.

Sizes may be of a `sample`: of every `sample` blocks of 64 numbers one, which a hash of their place chooses. They bound
and estimate the difference of the sampled numbers alone. Arrays of up to SMALL numbers are never sampled.

A complex number counts as two. Integers above 2^53 are rounded to float64. Where a number is NaN, l1 and largest are
NaN; where one is infinite and none NaN, both are infinite. Where l1 is not finite, the signed sums of more than KEPT
numbers are NaN.
"""

from __future__ import annotations

import functools
import math

import numpy as np

from kernels.elementary import two_sum

KEPT = 4  # arrays of at most so many numbers are kept whole
COLUMNS = ("l1", "largest", "p0", "p1", "p2", "p3")
LANES, BLOCK = 8, 64
SMALL = 4096  # arrays of at most so many numbers are taken whole
# Unit roundoffs by type. A long double is recorded as float64.
UNITS = {"float64": 2.0**-53, "complex128": 2.0**-53, "float32": 2.0**-24, "complex64": 2.0**-24, "float16": 2.0**-11,
         "bfloat16": 2.0**-8, "longdouble": 2.0**-53, "clongdouble": 2.0**-53}  # fmt: skip
# The types that the C++ code reads; others become float64.
DIRECT = ("float64", "float32", "float16", "bfloat16", "bool",
          *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))  # fmt: skip


def sizes(arrays: np.ndarray, sample: int = 1) -> tuple[int, np.ndarray] | None:
    """The sizes of `arrays[0]`, `arrays[1]`, ...: (numbers in each, float64 (n, 6) with the columns COLUMNS); None for
    a dtype that has no numbers. `sample` above 1: of one block among so many."""
    from kernels import _native  # reading traces, and `doctor`, need no C++

    rows = numbers(arrays)
    if rows is None:
        return None
    count = rows.shape[1]
    of = sample_of(count, sample)
    return count, _native.sizes(rows.view(np.uint8), dtype_name(rows.dtype), len(rows), count, of)


def sample_of(count: int, sample: int) -> int:
    """The sample that is taken of `count` numbers if `sample` is asked for: 1, all of them, for a small array."""
    return sample if count > SMALL else 1


def sampled(sample: int) -> str:
    """`one block of 64 numbers in 16`."""
    return f"one block of {BLOCK} numbers in {sample}"


def defined(arrays: np.ndarray, sample: int = 1) -> tuple[int, np.ndarray] | None:
    """The definition of `sizes` in NumPy, one row of lanes after the other."""
    rows = numbers(arrays)
    if rows is None:
        return None
    exact = rows.dtype.itemsize > 4
    count = rows.shape[1]
    taken = chosen(count, sample_of(count, sample))
    with np.errstate(all="ignore"):
        found = [_defined(row, exact, taken) for row in rows.astype(np.float64)]
    return count, np.array(found).reshape(-1, 6)


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


def chosen(count: int, sample: int) -> np.ndarray:
    """The blocks of `count` numbers that are taken if one among `sample` is: int64, ascending."""
    blocks = -(-count // BLOCK)
    first = np.arange(0, blocks, sample)
    here = np.minimum(sample, blocks - first).astype(np.uint64)
    return first + (_mixed(~(first // sample).astype(np.uint64)) % here).astype(np.int64)


def signs(count: int, k: int) -> np.ndarray:
    """The signs of `count` numbers in the signed sum `k`: float64 (count,)."""
    i = np.arange(count)
    block, lane = (i // BLOCK).astype(np.uint64), i % LANES
    bits = _mixed(2 * block) >> (8 * lane + i % BLOCK // LANES).astype(np.uint64) & np.uint64(1)
    return np.where(bits == 1, -1.0, 1.0) * HADAMARD[k, (lane + _turns(block)) % 4]


HADAMARD = np.array([[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]], np.float64)


def _turns(blocks: np.ndarray) -> np.ndarray:
    """By how many sums the lanes of these blocks (uint64) are turned: int64."""
    return (_mixed(2 * blocks + np.uint64(1)) % 4).astype(np.int64)


def _defined(row: np.ndarray, exact: bool, taken: np.ndarray) -> list[float]:
    """The six sizes of one row of float64, of its blocks `taken`; `exact`: with the errors within a block."""
    count = len(row)
    if count <= KEPT:
        size = np.abs(row)
        l1 = sum(size[1:].tolist(), size[0]) if count else 0.0
        kept = [*row.tolist(), *[0.0] * (KEPT - count)]
        return [*_together(l1, size), *kept]
    padded = np.zeros((-(-count // BLOCK), BLOCK))
    padded.reshape(-1)[:count] = row
    padded = padded[taken]
    by_lane = np.zeros(2 * LANES)
    for part in np.abs(padded).reshape(-1, 2 * LANES):
        by_lane = by_lane + part
    l1, largest = _together(sum(by_lane.tolist(), 0.0), np.abs(padded))
    if not np.isfinite(l1):
        return [l1, largest, *[np.nan] * 4]
    totals, errors = np.zeros((2, 4, LANES))
    own = signs(BLOCK * (int(taken[-1]) + 1), 0).reshape(-1, BLOCK)[taken]  # HADAMARD[0] is 1
    for block, turn in zip(padded * own, _turns(taken.astype(np.uint64)), strict=True):
        (even, odd), (lost, also_lost) = block[: 2 * LANES].reshape(2, LANES), np.zeros((2, LANES))
        for part in block[2 * LANES :].reshape(-1, 2, LANES):
            even, lost = _added(even, lost, part[0], exact)
            odd, also_lost = _added(odd, also_lost, part[1], exact)
        total, lost = _added(even, lost + also_lost, odd, exact)
        if exact:
            errors[turn] = errors[turn] + lost
        totals[turn], errors[turn] = _added(totals[turn], errors[turn], total)
    sums, rests = [0.0] * 4, [0.0] * 4
    for turn in range(4):
        for lane in range(LANES):
            j = (lane + turn) % 4
            sums[j], rests[j] = _added(sums[j], rests[j], float(totals[turn, lane]))
            rests[j] += float(errors[turn, lane])
    found = []
    for row_of_signs in HADAMARD.tolist():
        whole, rest = 0.0, 0.0
        for j, sign in enumerate(row_of_signs):
            whole, rest = _added(whole, rest, sign * sums[j])
            rest += sign * rests[j]
        found.append(whole + rest)
    return [l1, largest, *found]


def _together(l1: float, size: np.ndarray) -> tuple[float, float]:
    """(l1, largest), both NaN where a number is NaN."""
    return (np.nan, np.nan) if np.isnan(size).any() else (l1, float(size.max(initial=0.0)))


def _added(total, error, x, exact: bool = True):
    """(total + x rounded, error + the rounding error if `exact`), of floats or arrays."""
    after, lost = two_sum(total, x)
    return after, error + lost if exact else error


def _mixed(words: np.ndarray) -> np.ndarray:
    """uint64 `words` mixed by the finaliser of SplitMix64 (Steele, Lea & Flood 2014)."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))
