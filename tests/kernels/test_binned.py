"""The binned sum: one pass, with the unit of the largest element, wherever it is."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.exact import reference
from kernels.sums.order_free import binned

from .hard import bits, rounded

TILE = 2048  # elements that the C++ cuts by one level


def as_defined(x):
    return reference.order_free_sum("binned", x[x != 0])


@given(
    levels=st.lists(st.integers(-27, 25), min_size=1, max_size=6),
    seed=st.integers(0, 2**32),
    threads=st.sampled_from([1, 3]),
)
@settings(deadline=None, max_examples=60)
def test_levels_that_rise_and_fall_between_tiles_do_not_show(levels, seed, threads):
    """Each tile of another level, most of it small, so that slices are kept and dropped in every combination."""
    rng = np.random.default_rng(seed)
    tiles = []
    for level in levels:
        exponent = rng.integers(40 * level, min(40 * level + 40, 1015), endpoint=True)
        with np.errstate(under="ignore"):
            x = np.ldexp(rng.standard_normal(TILE // 4), exponent - rng.integers(0, 120, TILE // 4))
        tiles.append(np.concatenate([x, np.zeros(TILE - len(x))]))
    x = np.concatenate(tiles)
    expected = as_defined(x)
    assert bits(binned(x, threads=threads)) == bits(expected)
    assert bits(binned(x[::-1], threads=threads)) == bits(expected)


@pytest.mark.parametrize("level", [-27, -26, -25, -24, -1, 0, 1, 22, 23, 24, 25])
@pytest.mark.parametrize("tiles_between", [0, 1, 5])
def test_an_element_is_rounded_once_to_the_unit_of_the_largest(level, tiles_between):
    """Halves of a unit go to even, whether the unit is known before or after; twice rounded they would not."""
    unit = Fraction(2) ** max(40 * (level - 2), -1074)
    odd = [n * unit / 2 for n in (1, 3, 5, -1, -3, -7)]  # ties
    near = [t + s * unit / 2**20 for t in odd for s in (-1, 1)]  # next to ties
    small = np.array([float(v) for v in odd + near if abs(v) >= Fraction(2) ** -1074])
    top = np.array([2.0 ** max(40 * level, -1074)])
    between = np.zeros(tiles_between * TILE)
    expected = bits(as_defined(np.concatenate([small, top])))
    assert bits(binned(np.concatenate([small, between, top]))) == expected
    assert bits(binned(np.concatenate([top, between, small]))) == expected
    assert bits(binned(np.concatenate([top, small, -top, between, small[:2]]))) == bits(
        as_defined(np.concatenate([small, small[:2], top, -top]))
    )


@pytest.mark.parametrize("level", [-26, 0, 1, 24, 25])
@pytest.mark.parametrize("steps", [-2, -1, 0, 1, 2])
def test_the_level_changes_at_its_power_of_two(level, steps):
    edge = 2.0 ** (40 * level)
    for _ in range(abs(steps)):
        edge = np.nextafter(edge, np.inf if steps > 0 else 0)
    for sign in (1, -1):
        x = np.array([sign * edge] + [2.0 ** max(40 * level - k, -1074) / 3 for k in range(70, 130)])
        assert bits(binned(x)) == bits(as_defined(x))


@pytest.mark.parametrize(
    "x", [np.finfo(float).max, -np.finfo(float).max, 2.0**1000, 2.0**-1074, 1 - 2.0**-53]
)
@pytest.mark.parametrize("n", [1, 7, 8, 9, TILE - 1, TILE, TILE + 1, 3 * TILE, 100_000])
def test_no_number_of_equal_elements_overflows_a_word(x, n):
    assert bits(binned(np.full(n, x))) == bits(rounded(Fraction(x) * n))


def test_partial_sums_beyond_the_largest_number_come_back():
    most = np.finfo(float).max
    x = np.concatenate([np.full(5000, most), np.full(5000, -most), [2.0**930]])
    assert binned(x) == 2.0**930
    assert binned(np.append(x, most)) == most


@given(seed=st.integers(0, 2**32), exponent=st.sampled_from([-1000, -900, 0, 900, 1000]))
@settings(deadline=None, max_examples=30)
def test_errors_of_products_are_added_at_every_level(seed, exponent):
    rng = np.random.default_rng(seed)
    x = np.ldexp(rng.standard_normal(300), exponent // 2 - rng.integers(0, 60, 300))
    y = np.ldexp(rng.standard_normal(300), exponent - exponent // 2 - rng.integers(0, 60, 300))
    assert bits(binned(x, y)) == bits(reference.order_free_sum("binned", x, y))
    products = sum(Fraction(a) * Fraction(b) for a, b in zip(x.tolist(), y.tolist(), strict=True))
    largest = Fraction(float(np.abs(x * y).max()))
    assert abs(Fraction(float(binned(x, y))) - products) <= abs(products) / 2**53 + 600 * largest / 2**80


@pytest.mark.parametrize("threads", [1, 2])
def test_sums_beyond_64_bits_of_units_are_held(threads):
    """2**25 elements of nearly 2**40 units each."""
    x = np.full(2**25, 2.0**40 - 2.0**16, dtype=np.float32)
    assert binned(x, threads=threads) == 2.0**65 - 2.0**41
    assert binned(x, -x, threads=threads) == -(2.0**105) + 2.0**82 - 2.0**57


@pytest.mark.parametrize("level", [-26, -25, -1, 0, 3, 20])
@pytest.mark.parametrize("rise", [1, 2, pytest.param(3, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("gap", [0, 9000])
def test_elements_near_half_of_a_unit_that_a_later_element_brings(level, rise, gap):
    """They round to it or to zero, be it in the same tile as the later element or long before."""
    half = 2.0 ** max(40 * (level + rise - 2) - 1, -1074)
    near = np.array([half, np.nextafter(half, np.inf), np.nextafter(half, 0.0), 1.5 * half, 3 * half])
    top, nothing = 2.0 ** (40 * (level + rise) + 3), np.zeros(gap)
    for x in (*near, *-near):
        terms = np.concatenate([[x], nothing, [top], nothing, [-top]])
        assert bits(binned(terms)) == bits(as_defined(terms)) == bits(binned(terms[::-1]))
