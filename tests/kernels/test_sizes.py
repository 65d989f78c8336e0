"""Sizes of arrays: equal bits from C++ and NumPy, and the distance of two arrays from their signed sums."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels.sizes import BLOCK, KEPT, SMALL, chosen, defined, sample_of, signs, sizes

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


@pytest.mark.parametrize("count", [5, SMALL, SMALL + 1, SMALL + 64, 3 * SMALL + 17])
@pytest.mark.parametrize("sample", [2, 3, 16, 10**6])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, ml_dtypes.bfloat16])
def test_native_and_definition_agree_in_every_bit_of_a_sample(count, sample, dtype):
    arrays = drawn(np.random.default_rng(count), count).astype(dtype)
    assert bits(sizes(arrays, sample)) == bits(defined(arrays, sample))
    assert (sample_of(count, sample) == 1) == (count <= SMALL)
    if count <= SMALL:
        assert bits(sizes(arrays, sample)) == bits(sizes(arrays))


@pytest.mark.parametrize("sample", [0, -1])
def test_a_sample_of_no_block_is_refused(sample):
    with pytest.raises(ValueError, match="sample"):
        sizes(np.ones((1, SMALL + 1)), sample)


@pytest.mark.parametrize("count", [1, 64, 65, 1000, 64 * 48, 64 * 50 + 3])
@pytest.mark.parametrize("sample", [1, 2, 7, 16])
def test_a_sample_has_one_block_of_each_group(count, sample):
    taken = chosen(count, sample)
    assert (taken // sample).tolist() == list(range(0, math.ceil(math.ceil(count / BLOCK) / sample)))
    assert taken[-1] * BLOCK < count


def test_every_block_of_a_group_is_chosen_as_often():
    places = chosen(64 * 16 * 4000, 16) % 16
    assert np.abs(np.bincount(places, minlength=16) - 250).max() < 80


def test_the_sizes_of_a_sample_are_those_of_its_numbers():
    x = drawn(np.random.default_rng(2), 64 * 160, 1).astype(np.float32)
    y = x.copy()
    taken = chosen(64 * 160, 16)
    rest = np.setdiff1d(np.arange(160), taken)
    y.reshape(160, 64)[rest] = np.nan
    assert bits(sizes(x, 16)) == bits(sizes(y, 16))
    (l1, largest, *_), own = sizes(x, 16)[1][0], np.abs(x.reshape(160, 64)[taken].astype(np.float64))
    assert largest == own.max() and l1 == pytest.approx(math.fsum(own.reshape(-1)), rel=1e-15)


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


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_narrow_numbers_are_summed_with_at_most_four_more_roundings(dtype):
    rng = np.random.default_rng(4)
    row = (rng.standard_normal((1, 777)) * np.exp2(rng.integers(-14, 10, (1, 777)))).astype(dtype)
    _, ((l1, _, *p),) = sizes(row)
    for k, computed in enumerate(p):
        exact = sum(map(Fraction, (row[0].astype(np.float64) * signs(777, k)).tolist()))
        assert abs(Fraction(computed) - exact) <= Fraction(2) ** -53 * (abs(exact) + 4 * Fraction(l1))


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


def test_a_difference_of_a_few_numbers_shows_in_a_sum():
    """Two numbers cancel in all four sums if they have a sum and a sign in common: one time in eight."""
    rng, hidden = np.random.default_rng(6), 0
    for _ in range(800):
        a = rng.integers(-8, 8, (1, 500)).astype(np.float32)
        b = a.copy()
        b[0, rng.choice(500, 2, replace=False)] += 1
        hidden += np.array_equal(sizes(a)[1][0, 2:], sizes(b)[1][0, 2:])
    assert 0.08 < hidden / 800 < 0.17


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
