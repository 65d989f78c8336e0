"""Means of bins and sums of rows of a table: beside rational numbers, and beside the same with a copy of the rows."""

import ml_dtypes
import numpy as np
import pytest

from kernels.registry import get
from kernels.scatter.native import looked_up, means
from tests.rational import rational_sum

TYPES = (np.float64, np.float32, np.float16, ml_dtypes.bfloat16)
# Ranges of exponents for one limb, two limbs, integers of 128 bits and superaccumulators.
RANGES = ((-2, 2), (-20, 20), (-40, 40), (-300, 300))


def drawn(rng, shape, dtype, exponents):
    most = {2: 7 if dtype == np.float16 else 100, 4: 100, 8: 300}[np.dtype(dtype).itemsize]
    low, high = max(exponents[0], -most), min(exponents[1], most)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(low, high + 1, shape))).astype(dtype)


def same(a, b):
    """Whether the bits agree, but for those of NaN."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape
    wide = [x.astype(np.float64) for x in (a, b)]
    return np.array_equal(*wide, equal_nan=True) and np.array_equal(*(np.signbit(x[x == 0]) for x in wide))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("exponents", RANGES)
@pytest.mark.parametrize("threads", [1, 3])
def test_a_mean_is_the_exact_sum_divided_and_rounded_once(dtype, exponents, threads):
    rng = np.random.default_rng(abs(hash((np.dtype(dtype).name, exponents))) % 2**32)
    for n, columns, bins in ((1, 1, 1), (7, 3, 2), (60, 1, 5), (400, 2, 9)):
        x, index = drawn(rng, (n, columns), dtype, exponents), rng.integers(0, bins, n)
        index = np.sort(index) if n % 2 == 0 else index  # bins in turn
        counts = rng.integers(0, 5, bins) * rng.choice([1, 3, 10**6, 2**40 + 1], bins)
        found = means(x, index, counts, threads=threads)
        for b in range(bins):
            for c in range(columns):
                expected = rational_sum(x[index == b, c], int(counts[b]))[0]
                assert same(found[b, c], expected), (n, b, c, counts[b])


@pytest.mark.parametrize("dtype", TYPES)
def test_ties_subnormal_numbers_and_sums_beyond_the_range(dtype):
    info = ml_dtypes.finfo(dtype)
    most, tiny, one = (float(x) for x in (info.max, info.smallest_subnormal, 1))
    ulp = float(info.eps)
    columns = [
        [most, most], [-most, -most], [most, -most], [tiny, 0], [tiny, tiny], [3 * tiny, 0], [-tiny, 0],
        [one, one + ulp], [one + ulp, one + 2 * ulp], [0.0, -0.0], [np.inf, one], [-np.inf, np.inf], [np.nan, one],
    ]  # fmt: skip
    for parts in columns:
        for divisor in (1, 2, 3):
            x = np.array(parts, np.float64).astype(dtype)
            found = means(x, np.zeros(2, np.int64), np.array([divisor]))
            assert same(found, rational_sum(x, divisor)), (parts, divisor)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_in_turn_have_the_bits_of_bins_in_any_order(dtype):
    """Of few rows and of more than go through float64, with empty bins, and ties between two numbers of the type."""
    rng = np.random.default_rng(5)
    counts = np.concatenate([rng.integers(0, 20, 60), [0, 1500, 3, 0]])
    index, unit = np.repeat(np.arange(64), counts), float(np.finfo(dtype).eps)
    x = 1 + rng.integers(0, 4, (len(index), 3)) * unit
    x[rng.random(x.shape) < 0.3] *= unit / 4
    x, mixed = x.astype(dtype), rng.permutation(len(index))
    for threads in (1, 2):
        for divisors in (np.maximum(counts, 1), np.full(64, 2), counts):
            in_turn = means(x, index, divisors, threads=threads)
            assert same(in_turn, means(x[mixed], index[mixed], divisors, threads=threads))
        add = get("scatter_add", "exact", "native")
        assert same(add(x, index, 64, threads=threads), add(x[mixed], index[mixed], 64, threads=threads))


def test_a_long_mean_of_one_bin_is_carried():
    rng = np.random.default_rng(3)
    x = rng.standard_normal(5_000_000).astype(np.float32)
    found = means(x, np.zeros(len(x), np.int32), np.array([len(x)]))
    ints = np.ldexp(x.astype(np.float64), 50)  # whole numbers, added exactly in two parts
    high, low = np.floor(ints / 2**30), ints % 2**30
    total = int(high.sum()) * 2**30 + int(low.sum())
    from fractions import Fraction

    from tests.rational import nearest

    assert (ints == np.floor(ints)).all() and float(found[0]) == nearest(
        Fraction(total, len(x) << 50), 24, -149
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("order", ["exact", "sorted"])
@pytest.mark.parametrize("exponents", RANGES)
def test_rows_of_a_table_have_the_bits_of_their_copy(dtype, order, exponents):
    rng = np.random.default_rng(8)
    for m, n, columns, bins in ((5, 30, 3, 4), (50, 9, 1, 3), (300, 20_000, 2, 700), (4, 0, 2, 3)):
        table = drawn(rng, (m, columns), dtype, exponents)
        for kind in (np.int32, np.int64):
            rows, index = rng.integers(0, m, n).astype(kind), rng.integers(0, bins, n).astype(kind)
            index = np.sort(index) if kind is np.int64 else index  # bins in turn
            copied = get("scatter_add", order, "native")(table[rows], index, bins)
            for threads in (1, 3):
                assert same(looked_up(table, rows, index, bins, order, threads), copied)
        counts = np.maximum(np.bincount(index, minlength=bins), 1)
        assert same(means(table, index, counts, rows), means(table[rows], index, counts))


def test_what_does_not_exist_is_named():
    table, ones = np.ones((3, 2)), np.ones(2, np.int64)
    with pytest.raises(IndexError, match=r"index\[1\] is 3"):
        looked_up(table, np.array([0, 3]), ones, 2, "exact")
    with pytest.raises(IndexError, match=r"index\[0\] is -1"):
        looked_up(table, np.array([-1, 3]), ones, 2, "exact")
    with pytest.raises(IndexError, match=r"index\[0\] is 1"):
        means(table, ones, np.array([4]), ones)
    with pytest.raises(ValueError, match="shape"):
        looked_up(table, ones, np.ones(3, np.int64), 2, "exact")
    with pytest.raises(TypeError, match="int16"):
        looked_up(table, ones.astype(np.int16), ones, 2, "exact")
