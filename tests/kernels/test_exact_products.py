"""Exact sums of products of several pairs at once have the words of one pair after the other, by any threads."""

from fractions import Fraction

import numpy as np
import pytest

from kernels import exact

from .hard import bits

PAIRS = ["ru", "wu", "rr"]


def vectors(n, dtype=np.float64, spread=40):
    rng = np.random.default_rng(n)
    return {
        name: (rng.standard_normal(n) * np.exp2(rng.integers(-spread, spread, n))).astype(dtype)
        for name in "ruw"
    }


def one_by_one(given):
    words = exact.zeros(len(PAIRS))
    for of_pair, (a, b) in zip(words, PAIRS, strict=True):
        exact.add_products(of_pair, given[a].astype(np.float64), given[b].astype(np.float64))
    return words


def together(given, threads=1):
    words = exact.zeros(len(PAIRS))
    exact.add_many_products(words, [(given[a], given[b]) for a, b in PAIRS], threads)
    return words


@pytest.mark.parametrize("n", [0, 1, 31, 511, 512, 513, 2049, 50_000])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_several_pairs_at_once_are_the_pairs_one_by_one(n, dtype, threads):
    given = vectors(n, dtype, spread=10 if dtype is np.float16 else 40)
    assert bits(together(given, threads)) == bits(one_by_one(given))


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_one_pair_has_the_same_words_by_any_threads(threads):
    given, words = vectors(50_000), exact.zeros()
    exact.add_products(words, given["r"], given["u"], threads)
    assert bits(words) == bits(one_by_one(given)[0])


def test_products_of_float32_are_exact():
    given = vectors(300, np.float32)
    expected = sum(
        Fraction(float(a)) * Fraction(float(b)) for a, b in zip(given["r"], given["u"], strict=True)
    )
    assert exact.round(together(given))[0] == float(expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_not_finite_stays_in_its_pair(threads):
    given = vectors(50_000)
    given["w"][-1] = np.inf
    totals = exact.round(together(given, threads))
    assert np.isinf(totals[1]) and np.isfinite(totals[[0, 2]]).all()
    given["r"][7] = np.nan
    assert np.isnan(exact.round(together(given, threads))).tolist() == [True, False, True]


def test_words_are_added_to():
    given = vectors(1000)
    words = together(given)
    exact.add_many_products(words, [(-given[a], given[b]) for a, b in PAIRS])
    assert not words.any()


def test_types_may_differ_and_arrays_may_be_strided():
    given = vectors(1000, np.float32)
    mixed = given | {"u": given["u"].astype(np.float64), "w": np.repeat(given["w"], 2)[::2]}
    assert bits(together(mixed)) == bits(together(given))


def test_what_does_not_fit_is_refused():
    x = np.zeros(3)
    with pytest.raises(ValueError, match=r"make them with zeros\(2\)"):
        exact.add_many_products(exact.zeros(3), [(x, x), (x, x)])
    with pytest.raises(ValueError, match=r"factors of shapes \(3,\) and \(4,\)"):
        exact.add_many_products(exact.zeros(2), [(x, x), (x, np.zeros(4))])
    with pytest.raises(TypeError, match="convert it to float64"):
        exact.add_many_products(exact.zeros(1), [(x, x.astype(np.int64))])
    with pytest.raises(TypeError, match="C-contiguous words of int64"):
        exact.add_many_products(exact.zeros(4)[::2], [(x, x), (x, x)])
