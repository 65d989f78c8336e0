"""Fixed point: one exponent, integers, one rounding; C++ and NumPy agree by the word."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import exact
from kernels.exact import reference

from .hard import arrays, bits, exactly, long_arrays, rounded

DTYPES = [np.float32, np.float64]
LAST = {np.float32: 42, np.float64: 84}  # the last unit is 2**(exponent - this)


def narrowed(x, dtype):
    with np.errstate(over="ignore", under="ignore"):
        x = x.astype(dtype)
    return np.where(np.isfinite(x), x, np.finfo(dtype).max)


def total(x, exponent=None):
    exponent = exact.fixed_exponent(x) if exponent is None else exponent
    return exact.fixed_decode(exact.fixed_encode(x, exponent), exponent, x.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@given(x=st.one_of(arrays(), long_arrays()))
@settings(deadline=None)
def test_the_exponent_is_the_least_above_the_largest(x, dtype):
    x = narrowed(x, dtype)
    e = exact.fixed_exponent(x)
    assert e.dtype == np.int32
    largest = max((abs(Fraction(float(v))) for v in x), default=Fraction(0))
    if largest:
        assert Fraction(2) ** (int(e) - 1) <= largest < Fraction(2) ** int(e)
    else:
        assert e == exact.EMPTY


@pytest.mark.parametrize("dtype", DTYPES)
@given(x=arrays())
@settings(deadline=None, max_examples=300)
def test_a_sum_is_the_rounded_sum_of_the_elements_in_units(x, dtype):
    x = narrowed(x, dtype)
    e = int(exact.fixed_exponent(x))
    unit = Fraction(2) ** (e - LAST[dtype])
    in_units = sum(round(Fraction(float(v)) / unit) for v in x)  # Python too rounds ties to even
    assert abs(in_units * unit - exactly(x)) <= len(x) * unit / 2
    assert bits(total(x)) == bits(rounded(in_units * unit, dtype))


@pytest.mark.parametrize("dtype, binades", [(np.float32, 19), (np.float64, 32)])
@given(seed=st.integers(0, 2**32), scale=st.integers(-1021, 1015))
@settings(deadline=None)
def test_elements_near_the_largest_are_added_exactly(seed, scale, dtype, binades):
    rng = np.random.default_rng(seed)
    scale = int(np.clip(scale, np.finfo(dtype).minexp, np.finfo(dtype).maxexp - 9))
    x = np.ldexp(rng.uniform(1, 2, 200), rng.integers(0, binades, 200)) * rng.choice([-1, 1], 200)
    x[0] = np.ldexp(1.0, binades - 1)
    x = np.ldexp(x.astype(dtype), scale - binades)
    assert bits(total(x)) == bits(rounded(exactly(x), dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (3,), (40,), (100,), (2, 3), (0,)])
@given(x=st.one_of(arrays(), long_arrays()), lift=st.sampled_from([0, 1, 7, 90]))
@settings(deadline=None, max_examples=25)
def test_native_words_and_values_are_those_of_the_reference(x, lift, shape, dtype):
    size = math.prod(shape)
    x = narrowed(x, dtype)
    x = x[: len(x) // size * size].reshape(-1, *shape) if size else np.empty((len(x), *shape), dtype)
    assert exact.fixed_exponent(x) == reference.fixed_exponent(x)
    e = min(int(exact.fixed_exponent(x)) + lift, 1024)  # another rank may have larger ones
    words = exact.fixed_encode(x, e)
    assert words.shape == ((1 if dtype == np.float32 else 2), *shape)
    assert bits(words) == bits(reference.fixed_encode(x, e, len(words)))
    assert bits(exact.fixed_decode(words, e, dtype)) == bits(reference.fixed_decode(words, e, dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@given(seed=st.integers(0, 2**32), e=st.integers(-938, 1024), top=st.integers(1, 62))
@settings(deadline=None)
def test_any_words_in_normal_units_decode_to_the_nearest_number(seed, e, top, dtype):
    e = e if dtype == np.float64 else max(-84, min(e, 128))
    limbs = 1 if dtype == np.float32 else 2
    words = np.random.default_rng(seed).integers(-(2**top), 2**top, (limbs, 50), endpoint=True)
    values = [sum(int(w) * 2 ** (42 * (limbs - 1 - i)) for i, w in enumerate(column)) for column in words.T]
    expected = [rounded(v * Fraction(2) ** (e - LAST[dtype]), dtype) for v in values]
    assert bits(exact.fixed_decode(words, e, dtype)) == bits(np.array(expected, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@given(x=long_arrays(), seed=st.integers(0, 2**32), ranks=st.integers(1, 9))
@settings(deadline=None)
def test_neither_order_nor_partition_over_ranks_shows(x, seed, ranks, dtype):
    x = narrowed(x, dtype)
    parts = np.array_split(np.random.default_rng(seed).permutation(x), ranks)
    e = max(exact.fixed_exponent(part, n=len(x)) for part in parts)
    words = sum(exact.fixed_encode(part, e) for part in parts)
    assert bits(words) == bits(exact.fixed_encode(x, e))
    assert bits(exact.fixed_decode(words, e, dtype)) == bits(total(x))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("scale", [0, 100])
def test_a_million_of_the_largest_fit_and_one_more_is_refused(dtype, sign, scale):
    x = sign * np.ldexp(np.nextafter(dtype(1), dtype(0)), scale)
    many = np.full(exact.MAX_CONTRIBUTIONS, x)
    assert bits(total(many)) == bits(x * dtype(2**20))
    with pytest.raises(ValueError, match=r"at most 2\*\*20"):
        exact.fixed_encode(np.append(many, x), scale)
    with pytest.raises(ValueError, match=r"at most 2\*\*20"):
        exact.fixed_exponent(many[:1], n=2**20 + 1)


@pytest.mark.parametrize("dtype", DTYPES)
def test_beyond_the_largest_number_is_an_infinity_and_halfway_to_it_is_decided_once(dtype):
    most = np.finfo(dtype).max
    half_ulp = (most - np.nextafter(most, dtype(0))) / 2
    below = half_ulp * dtype(1 - 2**-10)
    x = np.array([[most, most, -most, -most], [most, half_ulp, -half_ulp, -below]], dtype=dtype)
    assert bits(total(x)) == bits(np.array([np.inf, np.inf, -np.inf, -most], dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_nan_and_infinities_follow_ieee_rules_and_finite_elements_become_nan(dtype):
    inf, nan = np.inf, np.nan
    x = np.array([[inf, -inf, inf, nan, 1.0, inf, 0.0], [1.0, -inf, -inf, 1.0, 2.0, nan, 0.0]], dtype=dtype)
    parts = [x[:1], x[1:]]
    e = max(exact.fixed_exponent(part) for part in parts)
    assert e == exact.NONFINITE
    words = sum(exact.fixed_encode(part, e) for part in parts)
    expected = np.array([inf, -inf, nan, nan, nan, nan, nan], dtype=dtype)
    assert bits(exact.fixed_decode(words, e, dtype)) == bits(expected)


def test_a_million_infinities_and_nans_do_not_spill_into_each_other():
    x = np.full((2**20, 1), -np.inf)
    assert total(x) == -np.inf
    x[::2] = np.nan
    assert np.isnan(total(x))
    assert total(np.full((2**20, 1), np.inf)) == np.inf


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x", [np.zeros((3, 4)), np.full((3, 4), -0.0), np.zeros((0, 4))])
def test_zeros_and_nothing_sum_to_positive_zero(x, dtype):
    assert bits(total(x.astype(dtype))) == bits(np.zeros(4, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_of_one_rank_do_not_hide_the_exponent_of_another(dtype):
    low = np.array([np.finfo(dtype).smallest_subnormal])
    e = max(exact.fixed_exponent(np.zeros(1, dtype)), exact.fixed_exponent(low))
    assert bits(total(low, e)) == bits(low[0])


@pytest.mark.parametrize("wrong", [2.0, -2.0, 3.0, np.nan, -np.inf, 1e300])
@pytest.mark.parametrize("columns", [1, 100])
def test_an_element_beyond_the_exponent_is_refused(wrong, columns):
    x = np.full((70, columns), 0.5)
    x[66, columns // 2] = wrong
    with pytest.raises(ValueError, match="agree on the exponent by MAX"):
        exact.fixed_encode(x, 0)


def test_wrong_types_limbs_exponents_and_outputs_are_refused():
    with pytest.raises(TypeError, match="convert it to float32 or float64"):
        exact.fixed_exponent(np.zeros(3, dtype=np.float16))
    with pytest.raises(ValueError, match="one limb is float32"):
        exact.fixed_decode(np.zeros((2, 3), dtype=np.int64), 0, np.float32)
    with pytest.raises(ValueError, match="is not one of fixed_exponent"):
        exact.fixed_encode(np.zeros(3), 1025)
    with pytest.raises(ValueError, match="expected C-contiguous float64"):
        exact.fixed_decode(np.zeros((2, 3), dtype=np.int64), 0, np.float64, out=np.zeros(4))
