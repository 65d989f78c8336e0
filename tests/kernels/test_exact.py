"""The superaccumulator: correctly rounded, free of order, no overflow; C++ and NumPy agree by the word."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels import exact
from kernels.exact import reference

from .hard import anything, arrays, bits, changing_arrays, exactly, long_arrays, rounded

LARGEST = np.finfo(np.float64).max


def words_of(x):
    words = exact.zeros(x.shape[1:])
    exact.add(words, x)
    return words


def total(x):
    return exact.round(words_of(np.asarray(x, dtype=np.float64)))


def value(words) -> Fraction:
    return sum(Fraction(int(c)) * Fraction(2) ** (32 * i - 1075) for i, c in enumerate(words[:67]))


@given(arrays())
@settings(deadline=None, max_examples=300)
def test_a_sum_is_correctly_rounded(x):
    assert bits(total(x)) == bits(rounded(exactly(x)))


@given(long_arrays())
@settings(deadline=None)
def test_a_long_sum_is_correctly_rounded(x):
    assert bits(total(x)) == bits(rounded(exactly(x)))


@pytest.mark.parametrize("decades", [0, 10, 100])
def test_fsum_agrees(decades):
    rng = np.random.default_rng(decades)
    x = rng.standard_normal(100_000) * 10.0 ** rng.integers(-decades, decades + 1, 100_000)
    assert bits(total(x)) == bits(math.fsum(x))


@given(arrays(), st.data())
@settings(deadline=None)
def test_neither_order_nor_partition_shows_in_the_words(x, data):
    y = np.array(data.draw(st.permutations(x.tolist())), dtype=np.float64)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(x)), max_size=5)))
    parts = sum((words_of(part) for part in np.split(y, cuts)), exact.zeros())
    exact.carry(parts)
    assert bits(parts) == bits(words_of(x))


@given(st.one_of(long_arrays(), arrays()), st.sampled_from([(), (1,), (2,), (3, 2)]))
@settings(deadline=None)
def test_native_words_are_the_references(x, shape):
    size = math.prod(shape)
    x = x[: len(x) // size * size].reshape(-1, *shape)
    expected = exact.zeros(shape)
    reference.add(expected, x)
    got = words_of(x)
    assert bits(got) == bits(expected)
    assert bits(exact.round(got)) == bits(reference.round(expected))


@given(changing_arrays())
@settings(deadline=None, max_examples=60)
def test_native_words_are_the_references_whatever_the_range_does_on_the_way(x):
    expected = exact.zeros()
    reference.add(expected, x)
    assert bits(words_of(x)) == bits(expected)
    assert float(total(x)) == math.fsum(x)


@given(changing_arrays(), st.integers(0, 2**32))
@settings(deadline=None, max_examples=30)
def test_words_of_products_are_the_references_whatever_the_range_does_on_the_way(x, seed):
    x = x[:6000]
    y = np.random.default_rng(seed).permutation(x)
    got, expected = exact.zeros(), exact.zeros()
    exact.add_products(got, x, y)
    reference.add_products(expected, x, y)
    assert bits(got) == bits(expected)


@given(st.integers(0, 2**32))
@settings(deadline=None)
def test_native_words_are_the_references_for_any_bits(seed):
    x = np.random.default_rng(seed).integers(0, 2**64, 100, dtype=np.uint64).view(np.float64)
    y = np.roll(x, 1)
    got, expected = words_of(x), exact.zeros()
    exact.add_products(got, x, y)
    reference.add(expected, x)
    reference.add_products(expected, x, y)
    assert bits(got) == bits(expected)
    finite = np.where(np.isfinite(x), x, 0.5)
    assert bits(exact.round(words_of(finite))) == bits(reference.round(words_of(finite)))


@given(arrays(), st.sampled_from([2, 3, 1000, 2**20]))
@settings(deadline=None)
def test_words_of_a_million_ranks_may_be_added_before_a_carry(x, ranks):
    words = words_of(x) * ranks
    assert bits(exact.round(words)) == bits(rounded(exactly(x) * ranks))
    more = words.copy()
    exact.add(more, x)  # on top of what has not been carried
    assert bits(exact.round(more)) == bits(rounded(exactly(x) * (ranks + 1)))
    exact.carry(words)
    assert bits(exact.round(words)) == bits(rounded(exactly(x) * ranks))


@pytest.mark.parametrize("x", [LARGEST, -LARGEST, 2.0**-1074, -(2.0**-1022), 1 + 2.0**-52])
@pytest.mark.parametrize("shape", [(), (2,)])
def test_no_number_of_deposits_overflows(x, shape):
    words = exact.zeros(shape)
    for _ in range(3):
        exact.add(words, np.full((6001, *shape), x))
    for w in words.reshape(-1, exact.WORDS):
        assert value(w) == Fraction(x) * 18003
        assert all(0 <= c < 2**32 for c in w[:66])


@pytest.mark.parametrize("x", [np.zeros(0), np.zeros(5), np.ones(5), np.ones(100)])
def test_words_are_carried_after_every_addition(x):
    words = words_of(np.full(3, -1 / 3)) * 2**20
    products = words.copy()
    exact.add(words, x)
    exact.add_products(products, x, x)
    for w in (words, products):
        carried = w.copy()
        exact.carry(carried)
        assert bits(w) == bits(carried)


def test_a_batch_of_wider_range_than_its_bins_loses_nothing():
    x = np.array([2.0**200, 1 / 3, -(2.0**-200) / 3] * 100 + [-(2.0**200)] * 100)
    assert value(words_of(x)) == exactly(x)


@pytest.mark.parametrize(
    "x, expected",
    [
        ([1, 2**-53], 1.0),
        ([1, 2**-53, 5e-324], 1 + 2**-52),
        ([1, 2**-53, -5e-324], 1.0),
        ([1 + 2**-52, 2**-53], 1 + 2**-51),
        ([-1, -(2**-53), -5e-324], -1 - 2**-52),
        ([LARGEST, 2.0**969], LARGEST),
        ([LARGEST, 2.0**970], math.inf),
        ([-LARGEST, -(2.0**970)], -math.inf),
        ([LARGEST, LARGEST, -LARGEST], LARGEST),
        ([LARGEST] * 2**14, math.inf),
        ([-LARGEST] * 2**14, -math.inf),
        ([LARGEST] * 40 + [-LARGEST] * 40 + [5e-324], 5e-324),
        ([2.0**-1022, -5e-324], 2.0**-1022 - 5e-324),
        ([5e-324, 5e-324], 1e-323),
    ],
)
def test_ties_go_to_even_and_one_low_bit_decides(x, expected):
    assert bits(total(x)) == bits(np.float64(expected))


@pytest.mark.parametrize("x", [[], [0.0], [-0.0], [-0.0, -0.0], [0.0, -0.0], [3.5, -3.5]])
def test_a_zero_sum_is_positive(x):
    assert bits(total(x)) == bits(np.float64(0.0))


@pytest.mark.parametrize(
    "x, expected",
    [
        ([math.inf, 1.0], math.inf),
        ([-math.inf, LARGEST, LARGEST], -math.inf),
        ([math.inf, -math.inf], math.nan),
        ([math.nan, 1.0], math.nan),
        ([-math.nan, math.inf], math.nan),
    ],
)
@pytest.mark.parametrize("padding", [0, 100])
def test_nan_and_infinities_follow_ieee_rules_whatever_else_is_added(x, expected, padding):
    x = np.array(x + [1.0] * padding)
    assert bits(total(x)) == bits(np.float64(expected))
    halves = sum(words_of(part) for part in np.split(x, [1]))
    assert bits(exact.round(halves)) == bits(np.float64(expected))


@given(st.lists(st.tuples(anything, anything), max_size=60))
@settings(deadline=None, max_examples=300)
def test_products_are_exact_where_they_are_said_to_be(pairs):
    pairs = [
        (a, b) for a, b in pairs if 2.0**-969 <= abs(Fraction(a) * Fraction(b)) <= LARGEST or a * b == 0 == a
    ]
    assume(pairs)
    a, b = np.array(pairs).T
    words = exact.zeros()
    exact.add_products(words, a, b)
    expected = sum(Fraction(u) * Fraction(v) for u, v in pairs)
    assert value(words) == expected
    assert bits(exact.round(words)) == bits(rounded(expected))


@given(long_arrays(), st.integers(0, 2**32))
@settings(deadline=None)
def test_long_products_are_exact_and_free_of_order(x, seed):
    rng = np.random.default_rng(seed)
    x = np.where(np.abs(x) < 1e-100, 1.0, np.clip(x, -1e100, 1e100))
    y = x[rng.permutation(len(x))]
    words, other = exact.zeros(), exact.zeros()
    exact.add_products(words, x, y)
    order = rng.permutation(len(x))
    for part in np.array_split(order, 3):
        exact.add_products(other, x[part], y[part])
    assert bits(words) == bits(other)
    assert value(words) == sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))


@given(
    st.lists(st.tuples(st.floats(-1e-140, 1e-140), st.floats(-1e-150, 1e-150)), min_size=1, max_size=40),
    st.data(),
)
@settings(deadline=None)
def test_products_that_underflow_are_off_by_little_and_stay_free_of_order(pairs, data):
    words, other = exact.zeros(), exact.zeros()
    exact.add_products(words, *np.array(pairs).T)
    exact.add_products(other, *np.array(data.draw(st.permutations(pairs))).T)
    assert bits(words) == bits(other)
    expected = sum(Fraction(a) * Fraction(b) for a, b in pairs)
    assert abs(value(words) - expected) <= len(pairs) * Fraction(2) ** -1075


def test_the_stated_limit_of_exact_products_is_the_limit():
    near = (1 + 2.0**-52) * 2.0**-484, (1 + 2.0**-52) * 2.0**-485  # last bit of the product: 2**-1073
    far = (1 + 2.0**-52) * 2.0**-500, (1 + 2.0**-52) * 2.0**-500  # 2**-1104
    for (a, b), is_exact in ((near, True), (far, False)):
        words = exact.zeros()
        exact.add_products(words, np.array([a]), np.array([b]))
        assert (value(words) == Fraction(a) * Fraction(b)) is is_exact


def test_a_product_beyond_the_largest_number_is_an_infinity():
    words = exact.zeros()
    exact.add_products(words, np.array([1e200, 1.0]), np.array([1e200, 2.0]))
    assert exact.round(words) == math.inf
    exact.add_products(words, np.array([1e200]), np.array([-1e200]))
    assert math.isnan(exact.round(words))


def test_products_of_infinity_and_zero_are_nan():
    words = exact.zeros()
    exact.add_products(words, np.array([math.inf]), np.array([0.0]))
    assert math.isnan(exact.round(words))


def test_narrow_and_strided_input_is_taken_as_it_is():
    x = np.random.default_rng(1).standard_normal((50, 6))
    assert bits(words_of(x[::2, ::3])) == bits(words_of(x[::2, ::3].copy()))
    narrow = x.astype(np.float32)
    assert bits(words_of(narrow)) == bits(words_of(narrow.astype(np.float64)))


def test_rounding_fills_the_array_it_is_given_and_leaves_the_words():
    words = words_of(np.ones((5, 3))) * 7
    before, out = words.copy(), np.empty(3)
    assert exact.round(words, out=out) is out
    assert out.tolist() == [35.0] * 3
    assert bits(words) == bits(before)


@given(x=st.one_of(arrays(), long_arrays()), shift=st.sampled_from([0, 0, -900, 900, -130]))
@settings(deadline=None)
def test_rounding_to_float32_is_one_rounding(x, shift):
    with np.errstate(over="ignore", under="ignore"):
        x = np.ldexp(x, shift)
    words = words_of(x[np.isfinite(x)])
    out = exact.round(words, out=np.empty((), dtype=np.float32))
    assert bits(out) == bits(rounded(value(words), np.float32))
    assert bits(out) == bits(reference.round(words, np.float32))


@pytest.mark.parametrize("x", [math.inf, -math.inf, math.nan, 2.0**128, -(2.0**128), 2.0**-149, 2.0**-150])
def test_float32_has_its_own_limits(x):
    with np.errstate(over="ignore", under="ignore"):
        expected = np.float32(x)
    assert bits(exact.round(words_of(np.array([x])), out=np.empty((), dtype=np.float32))) == bits(expected)


@pytest.mark.parametrize("x", [np.zeros((0,)), np.zeros((0, 3)), np.zeros((4, 0))])
def test_nothing_is_a_sum_too(x):
    assert bits(exact.round(words_of(x))) == bits(np.zeros(x.shape[1:]))


@pytest.mark.parametrize("dtype", [np.int64, np.complex128, np.longdouble, object])
def test_other_types_are_refused_by_name(dtype):
    with pytest.raises(TypeError, match="convert it to float64"):
        exact.add(exact.zeros(), np.zeros(3, dtype=dtype))


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"zeros\(\(3,\)\)"):
        exact.add(exact.zeros((2,)), np.zeros((5, 3)))
    with pytest.raises(ValueError, match="one shape"):
        exact.add_products(exact.zeros(), np.zeros(3), np.zeros(4))
    with pytest.raises(ValueError, match="the last dimension must be 70"):
        exact.carry(np.zeros((3, 5), dtype=np.int64))
    with pytest.raises(ValueError, match=r"\(2, 70\)"):
        exact.round(exact.zeros((3,)), out=np.zeros(2))


def test_words_that_cannot_be_changed_in_place_are_refused():
    with pytest.raises(TypeError, match="C-contiguous words of int64"):
        exact.add(exact.zeros((4,))[::2], np.zeros((1, 2)))
    with pytest.raises(TypeError, match="C-contiguous words of int64"):
        exact.carry(np.zeros(exact.WORDS))
