"""Blocks of numbers whose sum or dot product almost cancels, with a given condition number sum|x| / |sum x|.

Source: T. Ogita, S. M. Rump, S. Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26 (2005), Algorithm
6.1 (GenDot). The first terms have random signs and magnitudes between 1 and the condition number; each later term is
chosen so that it reduces the exact sum by some bits. Here every block ends with a positive sum in the wanted
proportion, so that the whole array has it too. At most TAIL terms reduce the sum, so that most of the work is done on
whole vectors. The last term fixes the condition number, which the source leaves to chance.
"""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

from kernels import draws, exact
from kernels.elementary import exponential2, logarithm2
from kernels.sums.elements import accumulator
from miniapps.errors import UsageError

TAIL = 256
# Bits of a significand that a step leaves unused, so that the remaining sum is accurate within 1/32.
SPARE = 6
# Exponents of the products that TwoProduct splits exactly end above 2**-969.
EXACT_PRODUCTS = 960


def limit(m: int, n: int, dtype, vectors: int) -> float:
    """log2 of the largest condition number that `m` of `n` elements can have; 0 if they can have none.

    It is bounded by how far the terms of the tail can reduce the sum, and by the range of the type.
    """
    if m < 2:
        return 0.0
    steps = _tail(m) * (ml_dtypes.finfo(dtype).nmant + 1 - SPARE)
    bottom, top = _range(m, n, dtype, vectors)
    return float(max(0.0, min(steps, top - bottom, 1023.0)))  # the condition number itself is a float64


def block(
    rng: np.random.Generator, m: int, n: int, condition: float, dtype, vectors: int
) -> list[np.ndarray]:
    """`vectors` (1: a sum, 2: a dot product) arrays (m,) of `dtype`: a block of an array of `n` elements, whose terms t
    have sum|t| / sum t = `condition` within 1/16.

    The terms of a block too short for that (the last) cancel in pairs, so that it does not change the total sum.
    Raises UsageError if a number leaves the range of the type.
    """
    dtype, bits = np.dtype(dtype), float(logarithm2(condition))
    if bits > limit(m, n, dtype, vectors):
        return _pairs(rng, m, dtype, vectors)
    bottom, top = _range(m, n, dtype, vectors)
    low = min(max(-bits / 2, bottom), top - bits)  # the smallest terms are about 2**low
    tail = _tail(m)
    head = m - tail
    exponents = low + draws.uniform(rng, 0.0, bits, head)
    exponents[0] = low + bits + 1
    factors = [_signed(rng, exponents / vectors).astype(dtype).astype(np.float64) for _ in range(vectors)]
    total, size = _exactly(factors), Fraction(float(np.abs(math.prod(factors)).sum()))
    rest: list[list[float]] = [[] for _ in range(vectors)]
    wanted = _signed(rng, low + bits * (1.0 - np.arange(1, tail + 1) / tail))
    given = _signed(rng, (low + bits * (1.0 - np.arange(1, tail + 1) / tail)) / 2).astype(dtype)
    for k in range(tail):
        first = Fraction(float(given[k])) if vectors == 2 else Fraction(1)
        if k < tail - 1:
            term = Fraction(float(wanted[k])) - total
        else:
            missing = size / Fraction(condition) - total
            term = missing / (1 - Fraction(1 if missing > 0 else -1) / Fraction(condition))
        number = float(dtype.type(float(term / first)))
        if not math.isfinite(number):
            raise UsageError(
                f"problem.condition = {condition:g} with {n} elements of {dtype} needs a number beyond the largest "
                f"{dtype}: choose another condition number, fewer elements or a wider problem.dtype"
            )
        total += first * Fraction(number)
        size += abs(first * Fraction(number))
        for column, value in zip(rest, (number, float(first))[:vectors], strict=True):
            column.append(value)
    order = rng.permutation(m)
    return [np.append(f, r)[order].astype(dtype) for f, r in zip(factors, rest, strict=True)]


def _tail(m: int) -> int:
    return min(m // 2, TAIL)


def _range(m: int, n: int, dtype, vectors: int) -> tuple[float, float]:
    """The lowest and highest exponent of terms such that neither they nor their sum leave the range of element and
    accumulator."""
    info, wide = ml_dtypes.finfo(dtype), np.finfo(accumulator(dtype))
    growth = (
        4 + float(logarithm2(m)) / 2
    )  # the ratio of the head's sum, which one term must cancel, to its largest term
    top = min(vectors * (info.maxexp - growth), wide.maxexp - 4 - float(logarithm2(n)))
    bottom = max(vectors * info.minexp, wide.minexp)
    return max(bottom, -EXACT_PRODUCTS) if vectors == 2 else bottom, top


def _signed(rng: np.random.Generator, exponents: np.ndarray) -> np.ndarray:
    """Numbers of random sign, 1/2 to 1 times 2**exponents."""
    sign = rng.integers(0, 2, len(exponents)) * 2.0 - 1.0
    return sign * draws.uniform(rng, 0.5, 1.0, len(exponents)) * exponential2(exponents)


def _exactly(factors: list[np.ndarray]) -> Fraction:
    """The exact sum of the products of `factors`, or of the one factor."""
    words = exact.zeros()
    if len(factors) == 2:
        left, right = factors
        exact.add_products(words, left, right)
    else:
        exact.add(words, factors[0])
    total = Fraction(0)
    while part := float(exact.round(words)):  # an expansion: each part rounds the remainder of the sum
        total += Fraction(part)
        exact.add(words, np.array([-part]))
    return total


def _pairs(rng: np.random.Generator, m: int, dtype, vectors: int) -> list[np.ndarray]:
    half = _signed(rng, np.zeros(m // 2))
    odd = np.zeros(m % 2)
    first = np.concatenate([half, -half, odd]).astype(dtype)
    return [first, np.ones(m, dtype)][:vectors]
