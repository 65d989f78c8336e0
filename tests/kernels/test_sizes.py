"""Sizes of arrays: equal bits from C++ and NumPy, and the distance of two arrays from their signed sums."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels.sizes import KEPT, defined, signs, sizes

REAL = (np.float64, np.float32, np.float16, np.longdouble, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2)
WHOLE = (np.int8, np.int64, np.uint16, bool)


def bits(found):
    count, rows = found
    return count, rows.shape, np.where(np.isnan(rows), np.nan, rows).view(np.uint64).tolist()


def drawn(rng, count, rows=2):
    return rng.standard_normal((rows, count)) * np.exp2(rng.integers(-40, 40, (rows, count)))


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 7, 8, 63, 64, 65, 128, 1000])
@pytest.mark.parametrize("dtype", [*REAL, *WHOLE, np.complex64, np.complex128, ">f8", ">c8"])
def test_native_and_definition_agree_in_every_bit(count, dtype):
    with np.errstate(all="ignore"):
        arrays = drawn(np.random.default_rng(count), count).astype(dtype)
    assert bits(sizes(arrays)) == bits(defined(arrays))
    assert sizes(arrays)[0] == count * (1 + np.iscomplexobj(arrays))


@pytest.mark.parametrize("count", [1, 3, 4, 5, 70])
@pytest.mark.parametrize(
    "special", [[np.nan], [np.inf], [-np.inf, np.inf], [np.nan, np.inf], [1.7e308, 1.7e308]]
)
def test_what_is_not_finite(count, special):
    arrays = np.ones((1, count))
    arrays[0, : len(special)] = special[:count]
    assert bits(sizes(arrays)) == bits(defined(arrays))
    l1, largest, *p = sizes(arrays)[1][0]
    if np.isnan(arrays).any():
        assert math.isnan(l1) and math.isnan(largest)
    else:
        with np.errstate(over="ignore"):
            assert largest == np.abs(arrays).max() and l1 == np.abs(arrays).sum()
    if count > KEPT:
        assert not math.isfinite(l1) and np.isnan(p).all()
    else:
        np.testing.assert_array_equal(p[:count], arrays[0])


def test_few_numbers_are_kept_and_others_summed_exactly_but_for_one_rounding():
    assert sizes(np.array([[3.0, -4.0]]))[1].tolist() == [[7.0, 4.0, 3.0, -4.0, 0.0, 0.0]]
    row = drawn(np.random.default_rng(3), 777, 1)
    _, ((_, _, *p),) = sizes(row)
    for k, computed in enumerate(p):
        exact = sum(map(Fraction, (row[0] * signs(777, k)).tolist()))
        assert abs(Fraction(computed) - exact) <= Fraction(2) ** -53 * abs(exact) * Fraction(1001, 1000)


def test_differences_are_bounded_and_their_squares_right_on_average():
    rng = np.random.default_rng(5)
    ratios = []
    for _ in range(200):
        a = rng.standard_normal(1000)
        d = np.zeros(1000)
        d[rng.integers(0, 1000, rng.integers(1, 30))] = 1e-6
        x, y = (sizes(each[None])[1][0, 2:] for each in (a, a + d))
        assert np.abs(x - y).max() <= np.abs(d).sum() * 1.0001
        ratios.append(np.mean((x - y) ** 2) / np.sum(d * d))
    assert 0.85 < np.mean(ratios) < 1.15


def test_signs_of_the_four_sums_are_balanced_and_independent():
    matrix = np.array([signs(2**16, k) for k in range(4)])
    products = matrix @ matrix.T / 2**16
    assert np.abs(products - np.eye(4)).max() < 5 / 256
    assert np.abs(matrix.mean(axis=1)).max() < 5 / 256


def test_types_without_numbers_have_no_sizes():
    for arrays in (
        np.array([b"ab"]),
        np.array(["ab"]),
        np.zeros(2, "V8"),
        np.zeros(2, "f8,f8"),
        np.zeros(1, "M8[s]"),
    ):
        assert sizes(arrays) is None and defined(arrays) is None
