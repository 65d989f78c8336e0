"""The metrics, with decisions for the cases that the published formulas leave open."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels import bits

INF, NAN = np.inf, np.nan
OTHER_NAN = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
LARGEST = np.finfo(np.float64).max
TINY = np.nextafter(0.0, 1.0)
floats = st.floats(allow_nan=True, allow_infinity=True, width=64)

# a, b, V_s of b against a, term of V_ermv, bits differ, ULP; NaN stands for undefined
CASES = [
    (1.5, 1.5, 0, 0, False, 0),
    (NAN, NAN, 0, 0, False, 0),
    (INF, INF, 0, 0, False, 0),
    (0.0, 0.0, 0, 0, False, 0),
    (0.0, -0.0, 0, 0, True, 1),
    (-0.0, TINY, -INF, INF, True, 2),
    (0.0, 1.0, -INF, INF, True, 0x3FF0000000000000),
    (2.0, 1.0, 0.5, 0.5, True, 2**52),
    (2.0, -2.0, 0, 2, True, 2 * 0x4000000000000000 + 1),
    (1.0, np.nextafter(1, 2), -(2.0**-52), 2.0**-52, True, 1),
    (LARGEST, INF, -INF, INF, True, 1),
    (INF, LARGEST, 1, NAN, True, 1),
    (INF, -INF, 0, NAN, True, 2 * 0x7FF0000000000000 + 1),
    (1.0, NAN, NAN, NAN, True, NAN),
    (NAN, 1.0, NAN, NAN, True, NAN),
    (NAN, OTHER_NAN, NAN, NAN, True, NAN),
]


@pytest.mark.parametrize("a, b, v_s, term, differ, ulp", CASES)
def test_every_open_case_is_decided(a, b, v_s, term, differ, ulp):
    np.testing.assert_array_equal(bits.v_s(a, b), v_s)
    np.testing.assert_array_equal(bits.relative_difference(a, b), term)
    np.testing.assert_array_equal(bits.differ(a, b), differ)
    np.testing.assert_array_equal(bits.ulp_distance(a, b), float(ulp))


@given(floats, floats)
def test_numbers_differ_and_are_ulp_apart_exactly_unless_bits_are_equal(a, b):
    same = np.float64(a).tobytes() == np.float64(b).tobytes()
    assert bits.differ(np.array([a]), np.array([b]))[0] != same
    assert (bits.ulp_distance(a, b) == 0) == same


@given(floats, st.integers(0, 50))
def test_ulp_counts_the_steps_from_one_number_to_the_next(x, steps):
    y = x
    for _ in range(steps):
        y = math.nextafter(y, math.inf)
    if np.isnan(x) or np.isinf(y):
        return
    through_zero = x < 0 <= y or (
        x == 0 and np.signbit(x) and y > 0
    )  # nextafter has one zero, the bits have two
    minus_zero = y == 0 and np.signbit(y)
    assert bits.ulp_distance(x, y) == steps + (through_zero and not minus_zero)
    assert bits.ulp_distance(y, x) == bits.ulp_distance(x, y)


def test_undefined_terms_are_counted_and_left_out_of_mean_and_maximum():
    a = np.array([[1.0, 2.0, INF, NAN], [NAN, NAN, NAN, NAN]])
    b = np.array([[1.0, 3.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]])
    mean, undefined = bits.v_ermv(a, b)
    np.testing.assert_array_equal(mean, [0.25, NAN])
    np.testing.assert_array_equal(undefined, [2, 4])
    np.testing.assert_array_equal(bits.largest(bits.relative_difference(a, b)), [0.5, NAN])


def test_v_s_resolves_one_unit_in_the_last_place():
    below = np.nextafter(1.0, 0.0)
    assert bits.v_s(1.0, below) == 2.0**-53
    assert bits.v_s(3.0, np.nextafter(3.0, 0.0)) == pytest.approx(2.0**-51 / 3, rel=1e-15)


@pytest.mark.parametrize("dtype", bits.WORDS, ids=str)
def test_arrays_are_counted_in_the_numbers_of_their_own_type(dtype):
    one = np.array([1.0, -1.0, 0.0], dtype)
    next_one = one + ml_dtypes.finfo(dtype).eps * one
    np.testing.assert_array_equal(bits.ulp_distance(one, next_one), [1.0, 1.0, 0.0])
    np.testing.assert_array_equal(bits.differ(one, next_one), [True, True, False])
    np.testing.assert_array_equal(bits.ulp_distance(one[2:], -one[2:]), [1.0])
