"""Order-free sums and dot products against rational numbers, for every type, order and number of threads."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import registry
from kernels.exact import reference
from kernels.sums.elements import accumulator

from .hard import arrays, bits, exactly, long_arrays, rounded

NAMES = ["binned", "fixed-point", "exact"]
DTYPES = [np.dtype(np.float64), np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16)]
THREADS = [1, 2, 3, 4, 8]
LONG = 8 * 16384 + 5  # elements of 16 bits that keep eight threads busy

named = pytest.mark.parametrize("name", NAMES)
typed = pytest.mark.parametrize("dtype", DTYPES, ids=str)


def total(name, x, **parameters):
    return registry.get("sum", name)(x, **parameters)


def dot(name, x, y, **parameters):
    return registry.get("dot", name)(x, y, **parameters)


def narrowed(x, dtype):
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(dtype)
    most = ml_dtypes.finfo(dtype).max
    return np.where(np.isfinite(x.astype(np.float64)), x, most).astype(dtype)


def sample(n, decades=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 10.0 ** rng.integers(-decades, decades + 1, n)


@named
@typed
@given(x=st.one_of(arrays(), long_arrays()))
@settings(deadline=None)
def test_a_sum_is_that_of_the_elements_in_units_rounded_once(name, dtype, x):
    x = narrowed(x, dtype)
    got = total(name, x)
    assert got.dtype == accumulator(dtype)
    assert bits(got) == bits(reference.order_free_sum(name, x))


@named
@typed
@given(x=st.one_of(arrays(), long_arrays()), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_dot_product_is_that_of_the_products_in_units_rounded_once(name, dtype, x, seed):
    """Factors of all sizes: among the products are some that overflow and some that underflow."""
    rng = np.random.default_rng(seed)
    x = narrowed(x, dtype)
    y = rng.permutation(x) if rng.integers(2) else narrowed(sample(len(x), 30, seed), dtype)
    got = dot(name, x, y)
    assert got.dtype == accumulator(dtype)
    assert bits(got) == bits(reference.order_free_sum(name, x, y))


@typed
@given(x=st.one_of(arrays(), long_arrays()), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_the_exact_sum_is_the_true_one_rounded_once(dtype, x, seed):
    x = narrowed(x, dtype)
    true = exactly(x.astype(np.float64))
    assert bits(total("exact", x)) == bits(rounded(true, accumulator(dtype).type))


@given(st.integers(0, 2**32), st.sampled_from([1, 40, 2100]))
@settings(deadline=None)
def test_the_exact_dot_product_is_the_true_one_rounded_once(seed, n):
    x, y = sample(n, 20, seed), sample(n, 20, seed + 1)
    y[n // 2 :] = -y[: n - n // 2]
    true = sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    assert bits(dot("exact", x, y)) == bits(rounded(true))
    x, y = narrowed(x, np.float32), narrowed(y, np.float32)
    true = sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    assert bits(dot("exact", x, y)) == bits(rounded(true, np.float32))


@named
def test_a_narrow_sum_is_not_rounded_twice(name):
    """8192 + 2**-11 is halfway between two float32; what decides is below the last bit of float64."""
    x = np.array([1] * 8192 + [2.0**-11, 2.0**-41], dtype=np.float32)
    assert total(name, x) == np.float32(8192 + 2.0**-10)
    assert dot(name, x, np.ones_like(x)) == np.float32(8192 + 2.0**-10)


def test_the_exact_narrow_sum_sees_bits_that_a_double_would_lose():
    x = np.array([1, 2.0**-24, 2.0**-100], dtype=np.float32)
    assert total("exact", x) == np.float32(1 + 2.0**-23)
    assert dot("exact", x, np.ones_like(x)) == np.float32(1 + 2.0**-23)


@named
@typed
@pytest.mark.parametrize("decades", [0, 2, 30])
def test_neither_order_nor_threads_show(name, dtype, decades):
    x = narrowed(sample(LONG, decades), dtype)
    y = narrowed(sample(LONG, decades, seed=1), dtype)
    sums = {bits(total(name, x, threads=t)) for t in THREADS}
    dots = {bits(dot(name, x, y, threads=t)) for t in THREADS}
    for seed in range(3):
        order = np.random.default_rng(seed).permutation(LONG)
        sums.add(bits(total(name, x[order], threads=THREADS[seed + 1])))
        dots.add(bits(dot(name, x[order], y[order], threads=THREADS[seed + 1])))
    assert len(sums) == len(dots) == 1


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("n", [8191, 16384, 65536 + 3, 200_001])
def test_threads_add_every_element_once(threads, n):
    x = sample(n)
    assert bits(total("exact", x, threads=threads)) == bits(np.float64(math.fsum(x)))
    whole = np.arange(n, dtype=np.float64)
    for name in NAMES:
        assert total(name, whole, threads=threads) == n * (n - 1) // 2
        assert dot(name, whole[:5000], whole[:5000], threads=threads) == sum(i * i for i in range(5000))


@named
@typed
@pytest.mark.parametrize("place", [0, 50, 5000, LONG - 1])
@pytest.mark.parametrize(
    "special, expected",
    [
        ([np.inf], np.inf),
        ([-np.inf, -np.inf], -np.inf),
        ([np.inf, -np.inf], np.nan),
        ([np.nan], np.nan),
        ([np.nan, np.inf], np.nan),
    ],
)
def test_nan_and_infinities_follow_ieee_rules(name, dtype, place, special, expected):
    x = np.ones(LONG, dtype=dtype)
    for k, v in enumerate(special):
        x[(place + 3000 * k) % LONG] = v
    expected = accumulator(dtype).type(expected)
    ones = np.ones_like(x)
    for threads in (1, 3):
        assert bits(total(name, x, threads=threads)) == bits(expected)
        assert bits(dot(name, x, ones, threads=threads)) == bits(expected)


@named
@typed
@pytest.mark.parametrize("x", [[], [0.0], [-0.0, -0.0], [-0.0] * 5000])
def test_zeros_and_nothing_sum_to_positive_zero(name, dtype, x):
    x = np.array(x, dtype=dtype)
    assert bits(total(name, x)) == bits(accumulator(dtype).type(0))
    assert bits(dot(name, x, x)) == bits(accumulator(dtype).type(0))


@named
def test_products_that_overflow_are_infinities_and_those_that_underflow_lose_what_float64_has_not(name):
    big = np.array([1e200, 1.0])
    assert dot(name, big, big) == np.inf
    assert dot(name, big, np.array([-1e200, 5.0])) == -np.inf
    assert np.isnan(dot(name, np.array([1e200, -1e200]), np.array([1e200, 1e200])))
    assert np.isnan(dot(name, np.array([np.inf]), np.array([0.0])))
    small = np.array([2.0**-600, 2.0**-537, 2.0**-537 * 3])
    assert dot(name, small, small) == 10 * 2.0**-1074
    narrow = np.array([2.0**100, 2.0**-120], dtype=np.float32)  # products of float32 fit float64
    assert dot(name, narrow, narrow) == np.inf
    assert dot(name, narrow[1:], np.array([2.0**-29], dtype=np.float32)) == np.float32(2.0**-149)


@named
def test_strided_and_read_only_factors_are_taken_like_their_copies(name):
    x, y = sample(9000)[::3], sample(6000)[::-2]
    x.flags.writeable = y.flags.writeable = False
    assert bits(dot(name, x, y)) == bits(dot(name, x.copy(), y.copy()))
    assert bits(total(name, x)) == bits(total(name, x.copy()))


@named
def test_factors_that_do_not_fit_are_refused(name):
    with pytest.raises((TypeError, ValueError), match="one length"):
        dot(name, np.ones(3), np.ones(4))
    with pytest.raises((TypeError, ValueError), match="one type"):
        dot(name, np.ones(3), np.ones(3, dtype=np.float32))
    with pytest.raises(TypeError, match="convert it to one of float64, float32, float16, bfloat16"):
        total(name, np.ones(3, dtype=np.int64))


@pytest.mark.parametrize("tile", [0, 1, 2, 3, 5, 62, 64])
@pytest.mark.parametrize("largest", [1.5, 3.0, 2.0**60, 2.0**1015, -np.finfo(np.float64).max, np.inf, np.nan])
@pytest.mark.parametrize("operation", ["sum", "dot"])
def test_the_largest_element_may_be_anywhere(operation, tile, largest):
    """The unit of fixed point is guessed from a part of the tiles, and must not be that of the part."""
    x = np.zeros(64 * 2048 + 100)
    x[::3001] = sample(len(x[::3001]), decades=0) / 8  # below 1
    x[tile * 2048 + 7] = largest
    for factor in (1.0, 2.0**-1020):
        terms = x * factor
        ones = np.ones_like(x) if operation == "dot" else None
        expected = reference.order_free_sum(
            "fixed-point", *(v[terms != 0] for v in (terms, ones) if v is not None)
        )
        for threads in (1, 3):
            if operation == "sum":
                result = total("fixed-point", terms, threads=threads)
            else:
                result = dot("fixed-point", terms, ones, threads=threads)
            assert bits(result) == bits(expected)
