"""Exact sums of float32 in limbs: as many words as the range needs, and independent sums."""

import numpy as np
import pytest

from kernels.exact import Limbs, range_of

from .bins import order_free
from .hard import bits

KINDS = ("normal", "wide", "ends", "subnormal", "cancelling", "not finite", "zeros")


def drawn(kind, rng, shape):
    """float32 numbers of a kind."""
    x = rng.standard_normal(shape)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if kind == "wide":
            x *= 2.0 ** rng.integers(-160, 128, shape)
        elif kind == "ends":
            x = rng.choice([3.4028235e38, -3.4028235e38, 1e-45, -1e-45, 0.0, -0.0], shape)
        elif kind == "subnormal":
            x = rng.integers(-5, 6, shape) * 1e-45
        elif kind == "cancelling":
            x = rng.choice([1e30, -1e30, 1e-6, 1.0, -1.0], shape)
        elif kind == "not finite":
            odd = rng.random(shape) < 0.1
            x[odd] = rng.choice([np.inf, -np.inf, np.nan], odd.sum())
        elif kind == "zeros":
            x = rng.choice([0.0, -0.0], shape)
        return x.astype(np.float32)


def travelled(x, index, bins, owner, terms=None):
    """The sums, where rank `owner[i]` adds row i into words, and these are added."""
    ranks = range(owner.max(initial=0) + 1)
    own = [owner == rank for rank in ranks]
    agreed = np.max([range_of(x[of], terms or int(of.sum())) for of in own], axis=0)
    limbs = Limbs.of(agreed, len(ranks))
    words = sum(limbs.added(x[of], index[of], bins) for of in own)
    assert words.shape == (bins, limbs.words, x.shape[1])
    return limbs.rounded(words)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_are_those_of_rational_numbers_wherever_terms_are(kind):
    """A bound of 2^35 terms leaves words of 27 bits, so that each number lies in several."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        n, columns, bins, ranks = (
            int(rng.integers(low, high)) for low, high in ((0, 40), (1, 6), (1, 6), (1, 5))
        )
        x, index = drawn(kind, rng, (n, columns)), rng.integers(0, bins, n)
        expected = bits(order_free(x, index, bins))
        for terms in (None, 2**35):
            assert bits(travelled(x, index, bins, rng.integers(0, ranks, n), terms)) == expected


def test_a_number_changes_no_sum_but_its_own():
    rng = np.random.default_rng(1)
    x, index = drawn("normal", rng, (50, 3)), rng.integers(0, 5, 50)
    owner = rng.integers(0, 3, 50)
    before = travelled(x, index, 5, owner)
    for large in (1e38, 1e-45, np.inf, -np.inf, np.nan):
        changed = x.copy()
        changed[7, 1] = large
        after = travelled(changed, index, 5, owner)
        same = before.view(np.int32) == after.view(np.int32)
        assert same.sum() >= same.size - 1 and (same | (np.arange(5) == index[7])[:, None]).all()


@pytest.mark.parametrize(
    "values, terms, words",
    [([1.0, 1.5], 8, 1), ([1.0, 2.0**-26], 8, 1), ([1.0, 2.0**-27], 8, 2), ([3e38, 1e-45], 8, 6), ([1, np.inf], 1, 3),
     ([], 1, 1), ([0.0], 1, 1), ([1.0, 2.0**-18], 2**20, 1), ([1.0, 2.0**-19], 2**20, 2)],
)  # fmt: skip
def test_there_are_as_many_words_as_the_range_needs(values, terms, words):
    assert Limbs.of(range_of(np.array(values, np.float32), terms)).words == words


def test_words_do_not_overflow_where_all_terms_are_as_large_as_can_be():
    x = np.full((2**16, 1), np.float32(2 - 2.0**-23))
    x[0] = 2.0**-40
    for sign in (1, -1):
        sums = travelled(sign * x, np.zeros(len(x), int), 1, np.zeros(len(x), int))
        assert sums[0, 0] == np.float32(sign * ((2**16 - 1) * (2 - 2.0**-23)))


def test_what_does_not_fit_is_refused():
    x = np.ones((3, 2), np.float32)
    limbs = Limbs.of(range_of(x, 3))
    for beyond in (2.0, 2.0**-24, np.inf, np.nan):
        for given in (Limbs(limbs.unit, 24, 1, False), Limbs(limbs.unit, 12, 2, False)):
            with pytest.raises(ValueError, match="agree on it by MAX"):
                given.added(np.full((1, 2), beyond, np.float32), np.array([0]), 1)
    for index in (-1, 3):
        with pytest.raises(IndexError, match=r"3 bins allow 0 \.\.\. 2"):
            limbs.added(x[:1], np.array([index]), 3)
    with pytest.raises(TypeError, match="float64"):
        range_of(np.ones(3), 3)
    with pytest.raises(ValueError, match=r"at most 2\*\*40"):
        Limbs.of(range_of(x, 2**30), 2**11)
