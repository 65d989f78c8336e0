"""Sums: each variant adds in the order it states, and keeps the promise it makes about its bits."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import exact, registry
from kernels.sums import native, order_free, reference

from .hard import arrays, bits, exactly, long_arrays, rounded

SUMS = registry.variants("sum")
HERE = [v for v in SUMS if v.unavailable() is None]
LENGTHS = [0, 1, 2, 63, 64, 65, 127, 128, 1023, 1024, 1025, 2049, 10007]


def named(variants):
    return pytest.mark.parametrize("variant", variants, ids=lambda v: v.name)


def sample(n, decades=8, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal(n) * 10.0 ** rng.integers(-decades, decades + 1, n)


def lanes_as_stated(x):
    lane = [0.0] * 64
    for i, v in enumerate(x.tolist()):
        lane[i % 64] += v
    w = 32
    while w:
        lane = [lane[i] + lane[i + w] for i in range(w)]
        w //= 2
    return lane[0]


def pairwise_as_stated(x):
    if len(x) <= 1024:
        return lanes_as_stated(x)
    half = -(-(len(x) // 2) // 64) * 64
    return pairwise_as_stated(x[:half]) + pairwise_as_stated(x[half:])


def neumaier_as_stated(x):
    total, error = 0.0, 0.0
    for v in x.tolist():
        new = total + v
        error += (total - new) + v if abs(total) >= abs(v) else (v - new) + total
        total = new
    return total + error


def left_to_right_as_stated(x):
    total = 0.0
    for v in x.tolist():
        total += v
    return total


STATED = [
    (native.lanes, lanes_as_stated),
    (native.pairwise, pairwise_as_stated),
    (native.neumaier, neumaier_as_stated),
    (reference.left_to_right, left_to_right_as_stated),
]


@pytest.mark.parametrize("function, stated", STATED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("n", LENGTHS)
def test_the_order_is_the_one_stated(function, stated, n):
    x = sample(n)
    assert bits(function(x)) == bits(stated(x))
    assert bits(function(np.full(n, -0.0))) == bits(stated(np.full(n, -0.0)))


@named(HERE)
@pytest.mark.parametrize("n", LENGTHS)
def test_every_sum_is_within_the_bound_of_any_order(variant, n):
    x = sample(n)
    bound = n * 2.0**-52 * math.fsum(np.abs(x))
    assert abs(variant(x) - math.fsum(x)) <= bound


@pytest.mark.parametrize("function", [native.omp_reduction, native.omp_atomic])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 1000])
def test_threads_add_every_element_once(function, threads, n):
    """Powers of four show an element left out or added twice; integers add up exactly in any order."""
    x = 4.0 ** (np.arange(n) % 16)
    assert function(x, threads=threads) == math.fsum(x)


@given(arrays())
@settings(deadline=None)
def test_the_exact_sum_is_correctly_rounded(x):
    assert bits(order_free.exactly(x)) == bits(rounded(exactly(x)))


@given(st.one_of(arrays(), long_arrays()))
@settings(deadline=None)
def test_the_fixed_point_sum_rounds_each_element_to_units_of_the_largest_and_the_sum_once(x):
    unit = Fraction(2) ** (int(exact.fixed_exponent(x)) - 84)
    assert bits(order_free.fixed_point(x)) == bits(
        rounded(unit * sum(round(Fraction(v) / unit) for v in x.tolist()))
    )


def test_the_fixed_point_sum_has_no_limit_of_length():
    x = np.full(2**20 + 3, 1 + 2.0**-52)
    x[-1] = -(2.0**-60)
    assert bits(order_free.fixed_point(x)) == bits(rounded(exactly(x[:1]) * (2**20 + 2) + exactly(x[-1:])))


@named([v for v in HERE if v.guarantee in ("layout", "exact")])
@given(x=st.one_of(arrays(), long_arrays()), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_promise_of_layout_holds_for_every_permutation(variant, x, seed):
    y = np.random.default_rng(seed).permutation(x)
    assert bits(variant(y)) == bits(variant(x))


@named([v for v in HERE if v.guarantee == "run"])
def test_a_promise_of_run_is_no_understatement(variant):
    """For sums that promise no more than repeats, there are permutations that show."""
    x = sample(3000, decades=16)
    x = np.concatenate([x, -x[::-1], sample(10, decades=1, seed=1)])
    orders = [np.random.default_rng(seed).permutation(x) for seed in range(50)]
    assert len({bits(variant(y)) for y in orders}) > 1
    assert all(bits(variant(y)) == bits(variant(y)) for y in orders)


@named(HERE)
def test_strided_and_read_only_arrays_are_summed_like_their_copies(variant):
    x = sample(5000)
    views = [x[::2], x[::-1], x[7::3]]
    for view in views:
        view.flags.writeable = False
        expected = variant(view.copy())
        if variant.backend == "numpy":  # its order may depend on the stride
            assert abs(variant(view) - expected) <= len(view) * 2.0**-52 * np.abs(view).sum()
        else:
            assert bits(variant(view)) == bits(expected)


@named(HERE)
@pytest.mark.parametrize(
    "x, expected",
    [([], 0.0), ([1.0, np.inf], np.inf), ([-np.inf, 1e308, 1e308], -np.inf)],
)
def test_nothing_sums_to_zero_and_infinities_stay(variant, x, expected):
    assert bits(variant(np.array(x, dtype=np.float64))) == bits(np.float64(expected))


@named(HERE)
@pytest.mark.parametrize("x", [[np.inf, -np.inf], [1.0, np.nan, 2.0]])
def test_nan_and_opposite_infinities_give_nan(variant, x):
    assert math.isnan(variant(np.array(x)))


@named(HERE)
def test_other_arrays_are_refused(variant):
    with pytest.raises(TypeError, match="cannot sum float32: convert it to float64"):
        variant(np.zeros(3, dtype=np.float32))
    with pytest.raises(ValueError, match=r"shape \(2, 2\): one dimension"):
        variant(np.zeros((2, 2)))
