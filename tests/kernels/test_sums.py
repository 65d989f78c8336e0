"""Properties of every sum and dot product: it adds each term once and keeps the promise it makes about its bits."""

import math
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from .hard import arrays, bits, long_arrays
from .sums import HERE, OPERATIONS, exact_terms, factors, in_each_type, named, promising, sample

THREADED = [
    v for v in promising("run", "layout", "exact") if "threads" in v.parameters and v.name != "omp-ordered"
]


@cache
def known_sum(operation, n, kind):
    """The vectors of an operation, the exact sum of its terms and that of their magnitudes."""
    vectors = factors(operation, n, kind, decades=3)
    values = exact_terms(vectors)
    return vectors, sum(values), sum(map(abs, values))


@in_each_type(HERE)
def test_every_sum_is_within_the_bound_of_any_order(variant, kind):
    """n - 1 additions and one product, each off by half a unit in the last place at most."""
    for n in [0, 1, 63, 64, 65, 1025, 4097]:
        vectors, exact, magnitudes = known_sum(variant.operation, n, kind)
        total = variant(*vectors)
        assert total.dtype == (np.float64 if kind == "float64" else np.float32)
        bound = n * Fraction(float(np.finfo(total.dtype).eps)) * magnitudes
        assert abs(Fraction(float(total)) - exact) <= bound, n


@named([v for v in HERE if "threads" in v.parameters])
@pytest.mark.parametrize("threads", [1, 2, 3, 7])
@pytest.mark.parametrize("n", [0, 1, 5, 1000, 100_000])
def test_threads_add_every_element_once(variant, threads, n):
    """Powers of four show an element left out or added twice; integers add up exactly in any order."""
    x = 4.0 ** (np.arange(n) % 16)
    ones = [np.ones(n)] * (OPERATIONS[variant.operation] - 1)
    assert variant(x, *ones, threads=threads) == math.fsum(x)


@in_each_type(THREADED)
def test_the_number_of_threads_does_not_enter(variant, kind):
    vectors = factors(variant.operation, 70_001, kind)
    one = bits(variant(*vectors, threads=1))
    for threads in (0, 2, 3, 4, 8):
        assert bits(variant(*vectors, threads=threads)) == one


@named(promising("layout", "exact"))
@given(x=st.one_of(arrays(), long_arrays()), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_promise_of_layout_holds_for_every_permutation(variant, x, seed):
    vectors = [x, np.roll(x, 1)][: OPERATIONS[variant.operation]]
    order = np.random.default_rng(seed).permutation(len(x))
    assert bits(variant(*(v[order] for v in vectors))) == bits(variant(*vectors))


@in_each_type(promising("run"))
def test_a_promise_of_run_is_no_understatement(variant, kind):
    """For sums that promise no more than repeats, there are permutations that show: here all cancels."""
    x, y = sample(3000, kind, decades=16), sample(3000, kind, decades=1, seed=1)
    x[:500] = 6e4
    x, y = np.concatenate([x, -x]), np.concatenate([y, y])
    shuffled = [np.random.default_rng(seed).permutation(len(x)) for seed in range(20)]
    seen = set()
    for order in [*shuffled, np.argsort(x, kind="stable")]:
        vectors = [v[order] for v in [x, y][: OPERATIONS[variant.operation]]]
        total = bits(variant(*vectors))
        assert bits(variant(*(v.copy() for v in vectors))) == total
        seen.add(total)
    assert len(seen) > 1
