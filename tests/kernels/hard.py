"""Inputs that break careless sums, and an oracle in rational numbers that shares nothing with the kernels."""

from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

anything = st.floats(allow_nan=False, allow_infinity=False)  # all binades, subnormals, both zeros
tame = st.floats(-1e3, 1e3)
huge = st.sampled_from([1.7976931348623157e308, -1.7976931348623157e308, 8.98846567431158e307, 1e308, -1e292])
tiny = st.sampled_from([5e-324, -5e-324, 2.2250738585072014e-308, -2.225073858507201e-308, 0.0, -0.0])


@st.composite
def arrays(draw, max_size=80):
    """Float64 arrays: wide, tame, huge, subnormal, mixed, and such that nearly everything cancels."""
    x = draw(st.lists(st.one_of(anything, tame, huge, tiny), max_size=max_size))
    if draw(st.booleans()):  # cancel all but what is drawn now, and what one unit in the last place leaves
        x += [-v for v in x] + draw(st.lists(st.one_of(tiny, tame), max_size=3))
        x = draw(st.permutations(x))
    return np.array(x, dtype=np.float64)


@st.composite
def long_arrays(draw):
    """Float64 arrays around the lengths at which the C++ changes its ways, of all ranges and scales."""
    n = draw(st.sampled_from([31, 32, 33, 63, 64, 65, 511, 513, 2047, 2048, 2049, 5000]))
    decades = draw(st.sampled_from([0, 3, 20, 60, 300]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x = rng.standard_normal(n) * 10.0 ** rng.integers(-decades, decades + 1, n)
    shift = draw(st.sampled_from([0, 0, 970, -960, -1000, -1040, -1070]))
    with np.errstate(over="ignore", under="ignore"):
        x = np.ldexp(x, shift)
    return np.where(np.isfinite(x), x, 2.0**1000)


@st.composite
def changing_arrays(draw):
    """Long float64 arrays whose range changes on the way, not aligned to vectors: parts that take two slices of the
    C++ superaccumulator, three, four, or none of them, and parts with few numbers far below the others.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    parts = [np.zeros(draw(st.integers(0, 7)))]
    for _ in range(draw(st.integers(1, 4))):
        n = draw(st.sampled_from([1, 31, 511, 2048, 2049, 5000, 20 * 2048]))
        binades = draw(st.sampled_from([0, 20, 58, 90, 140, 200, 2000]))
        part = np.ldexp(rng.standard_normal(n), rng.integers(-binades // 2, binades // 2 + 1, n))
        if draw(st.booleans()):  # so few exponents that the sums of their binades fill up
            part = np.copysign(np.ldexp(1 + rng.random(n), binades * rng.integers(-1, 2, n) // 2), part)
        if draw(st.booleans()):
            part[:: draw(st.sampled_from([3, 700]))] *= 2.0 ** -draw(st.sampled_from([60, 300, 1000]))
        parts.append(part)
    x = np.concatenate(parts)
    return x[len(parts[0]) :]


def exactly(x) -> Fraction:
    """The sum of finite numbers."""
    return sum((Fraction(v) for v in np.ravel(x).tolist()), Fraction(0))


def rounded(value: Fraction, dtype=np.float64) -> np.floating:
    """The number of `dtype` nearest to `value`, ties to even, beyond the largest an infinity; 0 is +0.0."""
    try:
        with np.errstate(over="ignore"):
            guess = dtype(float(value))  # Python rounds quotients of integers once
    except OverflowError:
        return dtype(np.inf if value > 0 else -np.inf)
    if dtype is np.float64:
        return guess
    with np.errstate(over="ignore", under="ignore"):  # rounded twice: the right one may be a neighbour
        near = [guess, np.nextafter(guess, dtype(-np.inf)), np.nextafter(guess, dtype(np.inf))]
    size = {v: abs(_extended(v) - value) for v in near}
    best = min(size.values())
    nearest = [v for v in near if size[v] == best]
    even = next(v for v in nearest if len(nearest) == 1 or v.view(np.uint32) % 2 == 0)
    return np.copysign(even, dtype(-1 if value < 0 else 1))


def _extended(v) -> Fraction:
    """An infinity counts as the power of two that would follow the largest number."""
    if np.isfinite(v):
        return Fraction(float(v))
    return Fraction(2) ** int(np.finfo(v.dtype).maxexp) * (1 if v > 0 else -1)


def bits(x) -> bytes:
    """Bits of floating numbers, for comparison as bits."""
    return np.asarray(x).tobytes()
