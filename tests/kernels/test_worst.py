"""Worst orders: found orders can be replayed, exceed random orders, and stay within the true extremes."""

from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.sums import worst
from kernels.sums.trees import declared
from kernels.tree import evaluate

from .hard import bits

DISTRIBUTIONS = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "uniform": lambda rng, n: rng.random(n),
    "centred": lambda rng, n: rng.random(n) - 0.5,
    "lognormal": lambda rng, n: rng.lognormal(0, 2, n),
    "negative": lambda rng, n: -rng.random(n),
    "wide": lambda rng, n: rng.standard_normal(n) * 10.0 ** rng.integers(-8, 9, n),
    "equal": lambda rng, n: np.full(n, 0.1),
    "zero": lambda rng, n: np.zeros(n),
    "minus zero": lambda rng, n: np.full(n, -0.0),
}
distributions = pytest.mark.parametrize("draw", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)


def replayed(x, order, unit):
    """The plainest sum there is, in that order of units."""
    total = x.dtype.type(0)
    for u in order:
        for v in x[u * unit : (u + 1) * unit]:
            total = total + v
    return total


@distributions
@pytest.mark.parametrize("n, unit", [(1, 1), (2, 1), (9, 1), (100, 1), (1000, 32), (2500, 1)])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_what_is_found_is_the_sum_in_that_order(draw, n, unit, dtype):
    x = draw(np.random.default_rng(n), n).astype(dtype)
    search = worst.search(x, unit, random_orders=4, exchanges=50)
    for extreme in (search.lowest, search.highest):
        assert sorted(extreme.order) == list(range(-(-n // unit)))
        assert bits(extreme.value) == bits(replayed(x, extreme.order, unit))
        assert bits(extreme.value) == bits(worst.in_order(x, extreme.order, unit))
        assert abs(Fraction(float(extreme.value)) - Fraction(search.exact)) <= Fraction(search.bound) * (
            1 + n * 2**-20
        )
    assert search.lowest.value <= search.random.min() <= search.random.max() <= search.highest.value


@given(st.integers(0, 2**32), st.integers(1, 7), st.sampled_from(sorted(DISTRIBUTIONS)))
@settings(max_examples=20, deadline=None)
def test_of_a_few_units_no_order_goes_further(seed, n, name):
    x = DISTRIBUTIONS[name](np.random.default_rng(seed), n)
    search = worst.search(x)
    sums = [replayed(x, order, 1) for order in permutations(range(n))]
    assert (search.lowest.value, search.highest.value) == (min(sums), max(sums))


@pytest.mark.parametrize("name", ["normal", "uniform", "centred", "lognormal", "negative"])
def test_orders_made_on_purpose_go_many_times_as_far_as_random_ones(name):
    x = DISTRIBUTIONS[name](np.random.default_rng(3), 20_000)
    search = worst.search(x)
    spread = search.random.max() - search.random.min()
    assert search.highest.value - search.lowest.value > 10 * spread > 0


def test_one_seed_gives_one_result():
    x = np.random.default_rng(0).standard_normal(500)
    first, again, other = (worst.search(x, seed=seed) for seed in (5, 5, 6))
    assert bits(first.highest.order) == bits(again.highest.order)
    assert bits(first.random) == bits(again.random) != bits(other.random)


def test_the_order_found_is_that_of_a_tree():
    x = np.random.default_rng(0).standard_normal(100)
    search = worst.search(x, unit=32)
    tree = declared("ao", 100, order=search.highest.order)
    assert bits(evaluate(tree, x)[0]) == bits(search.highest.value)


def test_exact_value_bound_and_count_are_as_said():
    x = np.array([1.0, 2.0**-53, 2.0**-53, -0.5])
    search = worst.search(x, random_orders=3)
    assert search.exact == 0.5 + 2.0**-52
    assert search.bound == 3 * 2.0**-53 * (1.5 + 2.0**-52)
    assert search.tried >= 3 + 2 * 24 and len(search.random) == 3
    assert (search.lowest.value, search.lowest.method) == (0.5, "as given")
    assert search.highest.value == 0.5 + 2.0**-52


@pytest.mark.parametrize(
    "x, message",
    [([], "0 terms"), ([1.0, np.nan], "1 not finite"), ([np.inf], "1 not finite")],
)
def test_what_has_no_order_is_refused(x, message):
    with pytest.raises(ValueError, match=message):
        worst.search(np.array(x))
    with pytest.raises(ValueError, match="unit 0"):
        worst.search(np.ones(3), unit=0)
