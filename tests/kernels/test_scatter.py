"""Scatter-adds: each variant adds in the order it states, keeps its promise, and refuses what it cannot add."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels.scatter  # noqa: F401 - registers its variants
from kernels import registry
from kernels.scatter import emulated, native, reference
from kernels.scatter.orders import ORDERS

from .bins import left_to_right, order_free
from .hard import arrays, bits, rounded

VARIANTS = registry.variants("scatter_add")
HERE = [v for v in VARIANTS if v.unavailable() is None and v.backend != "cupy"]
BY_PLACE = [v for v in HERE if v.name in ("numpy", "torch", "sorted", "reference")]
ORDER_FREE = [v for v in HERE if v.guarantee in ("layout", "exact")]
THREADED = [v for v in HERE if "threads" in v.parameters]
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
INDICES = [np.int32, np.int64]
SIZES = [(0, 0, None), (0, 5, None), (5, 3, 0), (1, 1, None), (5, 3, 1), (999, 50, None), (999, 50, 7)]


def named(variants):
    return pytest.mark.parametrize("variant", variants, ids=lambda v: f"{v.name}-{v.backend}")


def sample(n, bins, dtype=np.float64, columns=None, decades=4, seed=0):
    rng = np.random.default_rng(seed)
    shape = n if columns is None else (n, columns)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-decades, 1, shape)
    return x.astype(dtype), rng.integers(0, max(bins, 1), n)


def options(variant):
    """The numbers of threads that a variant is tried with."""
    return [{"threads": t} for t in (1, 2, 3, 4, 8)] if "threads" in variant.parameters else [{}]


def test_every_order_is_registered_with_its_promise():
    assert {v.name for v in VARIANTS} == set(ORDERS)
    assert all((v.guarantee, v.why) == (ORDERS[v.name].guarantee, ORDERS[v.name].why) for v in VARIANTS)


# ---- the sums


@named(BY_PLACE)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n, bins, columns", SIZES)
def test_bins_are_added_by_ascending_place(variant, dtype, n, bins, columns):
    x, index = sample(n, bins, dtype, columns)
    expected = left_to_right(x, index, bins)
    for index_type in INDICES:
        out = variant(x, index.astype(index_type), bins)
        assert out.dtype == expected.dtype and out.shape == expected.shape
        assert bits(out) == bits(expected)


@named(ORDER_FREE)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n, bins, columns", SIZES)
@pytest.mark.parametrize("decades", [0, 6, 30])
def test_order_free_sums_are_those_of_rational_numbers(variant, dtype, n, bins, columns, decades):
    """Float64 of 30 decades, and float32 with numbers as small as it has, are too wide for 128 bits."""
    x, index = sample(n, bins, dtype, columns, decades)
    x.reshape(-1)[: min(x.size, 2)] = np.finfo(np.float32).max if x.dtype.name == "float32" else 1.5
    expected = order_free(x, index, bins)
    for index_type in INDICES:
        out = variant(x, index.astype(index_type), bins)
        assert out.dtype == expected.dtype and out.shape == expected.shape
        assert bits(out) == bits(expected)


@named(ORDER_FREE)
@given(x=arrays(), seed=st.integers(0, 2**32), bins=st.integers(1, 5), narrow=st.sampled_from(TYPES))
@settings(deadline=None)
def test_order_free_sums_stand_hard_input(variant, x, seed, bins, narrow):
    """Huge, subnormal, cancelling numbers, both zeros; narrower types make infinities of some."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        x = x.astype(narrow)
    rng = np.random.default_rng(seed)
    index = rng.integers(0, bins, len(x))
    expected = order_free(x, index, bins)
    assert bits(variant(x, index, bins)) == bits(expected)
    p = rng.permutation(len(x))
    assert bits(variant(x[p], index[p], bins)) == bits(expected)


@named(HERE)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n, bins, columns", SIZES)
def test_integers_add_up_in_any_order(variant, dtype, n, bins, columns):
    x, index = sample(n, bins, dtype, columns, decades=0)
    x = np.rint(x).astype(dtype)
    expected = left_to_right(x, index, bins)
    for chosen in options(variant):
        assert bits(variant(x, index, bins, **chosen)) == bits(expected)


# ---- threads: what is longer than one thread takes, in all shapes


LONG = [
    (8191, 100),
    (8192, 1),
    (8193, 2),
    (40_000, 17),
    (70_000, 30_000),
    (300_000, 1000),
    (1_200_000, 250_000),
]


@named(THREADED)
@pytest.mark.parametrize("n, bins", LONG)
def test_threads_do_not_enter_sums_of_integers(variant, n, bins):
    x, index = sample(n, bins, np.float32, decades=0)
    x = np.rint(100 * x)
    expected = reference.ascending(x, index, bins)
    for chosen in options(variant):
        assert bits(variant(x, index.astype(np.int32), bins, **chosen)) == bits(expected)


@pytest.mark.parametrize("n, bins", LONG)
@pytest.mark.parametrize(
    "dtype, columns", [(np.float64, None), (np.float32, None), (ml_dtypes.bfloat16, None)]
)
def test_sorted_has_the_bits_of_the_reference_by_any_number_of_threads(n, bins, dtype, columns):
    x, index = sample(n, bins, dtype, columns)
    expected = bits(reference.ascending(x, index, bins))
    for threads in (1, 2, 3, 4, 8):
        assert bits(native.by_bin(x, index, bins, threads)) == expected


def skewed(n, bins, how):
    rng = np.random.default_rng(1)
    return {
        "one": np.full(n, bins // 2),
        "ascending": np.arange(n) * bins // n,
        "zipf": rng.zipf(1.2, n) % bins,
        "two": np.where(np.arange(n) % 2, bins - 1, 0),
    }[how]


@pytest.mark.parametrize("how", ["one", "ascending", "zipf", "two"])
@pytest.mark.parametrize("columns", [None, 3, 40])
def test_skewed_bins_make_no_difference(how, columns):
    n, bins = 20_000, 3000
    x, _ = sample(n, bins, np.float32, columns)
    index = skewed(n, bins, how)
    by_place = bits(reference.ascending(x, index, bins))
    free = {v.name: bits(v(x, index, bins, threads=1)) for v in ORDER_FREE}
    for threads in (2, 3, 8):
        assert bits(native.by_bin(x, index, bins, threads)) == by_place
        assert {v.name: bits(v(x, index, bins, threads=threads)) for v in ORDER_FREE} == free


@named(ORDER_FREE)
@pytest.mark.parametrize("n, bins", [(30_000, 20_000), (100_000, 50)])
@pytest.mark.parametrize("decades", [3, 100])
def test_neither_threads_nor_permutations_show_in_order_free_sums(variant, n, bins, decades):
    x, index = sample(n, bins, np.float64, None, decades)
    expected = bits(variant(x, index, bins, threads=1))
    for threads in (2, 3, 4, 8):
        p = np.random.default_rng(threads).permutation(n)
        assert bits(variant(x[p], index[p], bins, threads=threads)) == expected


def test_ways_of_adding_exactly_agree():
    """A number that is too small for 128 bits changes the way, and here no bits."""
    x, index = sample(60_000, 500, np.float64, decades=3)
    narrow = native.exact(x, index, 501, 2)
    wide = native.exact(np.append(x, 5e-324), np.append(index, 500), 501, 2)
    assert wide[500] == 5e-324
    assert bits(wide[:500]) == bits(narrow[:500])


@named(ORDER_FREE)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_bin_takes_more_elements_than_a_word_of_64_bits_would(variant, dtype):
    n = 2**22 + 5
    x = np.full(n, 2 - np.finfo(dtype).eps, dtype=dtype)
    x[-1] = -np.finfo(dtype).eps
    index = np.zeros(n, dtype=np.int32)
    expected = rounded(Fraction(float(x[0])) * (n - 1) + Fraction(float(x[-1])), dtype)
    for threads in (1, 2, 3):
        assert bits(variant(x, index, 2, threads=threads)) == bits(np.array([expected, 0], dtype=dtype))


@named([v for v in THREADED if v.guarantee != "none"])
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize("decades", [1, 3, 100])
@pytest.mark.parametrize("special", [1.0, np.nan, -np.inf])
def test_what_sums_begin_with_is_one_more_element_the_first(variant, columns, decades, special):
    x, index = sample(9000, 40, np.float64, columns, decades)
    start, _ = sample(40, 1, np.float64, columns, seed=2)
    start[3], start[4] = special, -0.0
    before = start.copy()
    expected = variant(np.concatenate([start, x]), np.concatenate([np.arange(40), index]), 40, threads=1)
    for threads in (1, 3):
        assert bits(variant(x, index, 40, threads=threads, start=start)) == bits(expected)
    assert bits(start) == bits(before)
    with pytest.raises(ValueError, match="cannot begin with float32 of shape"):
        variant(x, index, 40, start=start.astype(np.float32))


@named([v for v in HERE if v.guarantee == "run"])
def test_a_promise_of_run_is_no_understatement(variant):
    """For variants that promise no more than repeats, there are permutations that show."""
    x, index = sample(3000, 5)
    orders = [np.random.default_rng(seed).permutation(3000) for seed in range(20)]
    assert len({bits(variant(x[p], index[p], 5)) for p in orders}) > 1


# ---- orders of arrival


def test_an_emulated_order_of_arrival_is_that_of_its_seed():
    x, index = sample(5000, 7, np.float32)
    results = {bits(emulated.atomic(x, index, 7, seed)) for seed in range(20)}
    assert len(results) > 1
    assert bits(emulated.atomic(x, index, 7, 3)) == bits(emulated.atomic(x, index, 7, 3))
    assert bits(emulated.atomic(x, index, 7, 3, resident=1)) == bits(reference.ascending(x, index, 7))


def test_an_emulated_warp_arrives_as_one():
    """All warps in one bin: only their order is left to chance, so that two of them have two orders."""
    x, index = sample(64, 1, np.float32)
    swapped = np.roll(np.arange(64), 32)
    expected = {
        bits(reference.ascending(x, index, 1)),
        bits(reference.ascending(x[swapped], index[swapped], 1)),
    }
    assert {bits(emulated.atomic(x, index, 1, seed)) for seed in range(20)} == expected


# ---- uncommon numbers


@named(HERE)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("padding", [0, 20_000])
def test_nan_and_infinities_stay_in_their_bins(variant, dtype, padding):
    inf, nan = np.inf, np.nan
    x = np.array([1.5, inf, 2, -inf, inf, -inf, nan, 7, 0.25, 1, inf] + [1.0] * padding, dtype=dtype)
    index = np.array([0, 1, 1, 2, 3, 3, 4, 4, 5, 7, 7] + [8] * padding)
    for chosen in options(variant):
        out = variant(x, index, 9, **chosen)
        expected = np.array([1.5, inf, -inf, nan, nan, 0.25, 0, inf, padding], out.dtype)
        assert np.array_equal(out, expected, equal_nan=True)
        assert not np.signbit(out[6])


@named(ORDER_FREE)
def test_a_nan_has_one_pattern(variant):
    x = np.array([0x7FF0000000000001, 0xFFF8000000000005, 0x3FF0000000000000], dtype=np.uint64).view(
        np.float64
    )
    assert bits(variant(x, np.array([0, 1, 1]), 2)) == bits(np.array([np.nan, np.nan]))


@named(HERE)
@pytest.mark.parametrize("dtype", TYPES)
def test_negative_zeros_give_zero_and_empty_bins_have_it(variant, dtype):
    out = variant(np.array([-0.0, -0.0, 3.0, -3.0], dtype=dtype), np.array([0, 0, 2, 2]), 4)
    assert bits(out) == bits(np.zeros(4, out.dtype))


@named(HERE)
@pytest.mark.parametrize("dtype", TYPES)
def test_the_smallest_numbers_are_not_lost(variant, dtype):
    tiny = np.array([1, 2, 0x8000 if dtype in TYPES[2:] else 0], dtype=f"u{np.dtype(dtype).itemsize}").view(
        dtype
    )
    out = variant(np.tile(tiny, 5), np.tile(np.array([0, 1, 1]), 5), 2)
    assert out.tolist() == [5 * float(tiny[0]), 5 * float(tiny[1])]


@named(BY_PLACE)
def test_partial_sums_overflow_where_they_are_formed(variant):
    x = np.array([1e308, 1e308, -1e308, 1.0])
    assert variant(x, np.array([0, 0, 0, 1]), 2).tolist() == [np.inf, 1.0]


@named(ORDER_FREE)
def test_order_free_sums_overflow_only_at_the_end(variant):
    x = np.array([1e308, 1e308, -1e308, 1.5e308, 1.5e308, -1.7e308, -1.7e308])
    assert variant(x, np.array([0, 0, 0, 1, 1, 2, 2]), 3).tolist() == [1e308, np.inf, -np.inf]


# ---- where the numbers lie


@named(HERE)
@pytest.mark.parametrize("dtype", TYPES)
def test_how_arrays_lie_in_memory_does_not_matter(variant, dtype):
    x, index = sample(400, 30, dtype, 4)
    x = np.rint(x * 8).astype(dtype)
    fixed = {"threads": 1} if "threads" in variant.parameters else {}
    expected = bits(variant(x, index, 30, **fixed))
    raw = np.zeros(x.nbytes + 1, dtype=np.uint8)
    misaligned = raw[1:].view(dtype).reshape(x.shape)
    misaligned[...] = x
    doubled = np.repeat(x, 2, axis=0)[::2]
    read_only = x.copy()
    read_only.flags.writeable = False
    for same in (misaligned, doubled, np.asfortranarray(x), read_only):
        assert bits(variant(same, index, 30, **fixed)) == expected
    for same in (np.repeat(index, 2)[::2], index.astype(">i8"), index[::-1].copy()[::-1]):
        assert bits(variant(x, same, 30, **fixed)) == expected
    if np.dtype(dtype).kind == "f" and np.dtype(dtype).name != "bfloat16":
        assert bits(variant(x.astype(np.dtype(dtype).newbyteorder(">")), index, 30, **fixed)) == expected


# ---- what is refused


@named(HERE)
@pytest.mark.parametrize("padding", [0, 100_000])
def test_the_first_index_out_of_range_is_named_with_its_place(variant, padding):
    x, some = np.ones(4 + 2 * padding, dtype=np.float32), [2] * padding
    for chosen in options(variant):
        with pytest.raises(IndexError, match=rf"index\[{padding + 2}\] is 7, but 3 bins allow 0 ... 2$"):
            variant(x, np.array([*some, 0, 2, 7, -1, *some]), 3, **chosen)
        with pytest.raises(
            IndexError, match=r"index\[1\] is -1, .* negative indices do not count from the end"
        ):
            variant(x, np.array([0, -1, *some, 1, *some, 3]), 3, **chosen)
    with pytest.raises(IndexError, match=r"index\[0\] is 0, but 0 bins allow nothing"):
        variant(x[:4], np.zeros(4, dtype=np.int32), 0)
    with pytest.raises(IndexError, match=rf"index\[1\] is {2**40}, but 3 bins"):
        variant(x[:2], np.array([0, 2**40]), 3)


@named(HERE)
def test_what_cannot_be_added_is_refused_by_name(variant):
    where = rf"scatter_add {variant.name!r} \({variant.backend}\)"
    x, index = np.ones(4), np.zeros(4, dtype=np.int64)
    with pytest.raises(TypeError, match=where + " cannot add int64: .* float64, float32, float16, bfloat16"):
        variant(x.astype(np.int64), index, 1)
    with pytest.raises(TypeError, match=where + " cannot take an index of uint8: .* int32, int64"):
        variant(x, index.astype(np.uint8), 1)
    with pytest.raises(ValueError, match=where + r" cannot add elements of shape \(1, 2, 2\)"):
        variant(x.reshape(1, 2, 2), index[:1], 1)
    with pytest.raises(
        ValueError, match=where + r" has an index of shape \(3,\) for elements of shape \(4,\)"
    ):
        variant(x, index[:3], 1)
    with pytest.raises(ValueError, match=where + r" cannot have -1 bins"):
        variant(x, index, -1)
    with pytest.raises(TypeError, match=where + r" needs an integer number of bins, not 1.5"):
        variant(x, index, 1.5)


@named(THREADED)
def test_a_negative_number_of_threads_is_refused(variant):
    with pytest.raises(ValueError, match="threads -1: choose 1 to 1024, or 0"):
        variant(np.ones(3), np.zeros(3, dtype=np.int32), 1, threads=-1)
