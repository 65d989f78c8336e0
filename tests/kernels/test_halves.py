"""Numbers whose plain sums the processor proves exact: exact sums take this way for numbers of like size."""

from fractions import Fraction

import numpy as np
import pytest

from kernels import _native, exact

LEVELS = range(len(_native.CONTRACT["levels"]))

NANS = np.array([0x7FF0000000000001, 0x7FF8000000000001], np.uint64).view(np.float64)  # of lower bits alone


def halves(x, level=-1):
    upper, lower, proven = _native.exact_halves(np.ascontiguousarray(x), level)
    return upper, lower, bool(proven)


def drawn(rng):
    """Numbers of which about half can be added without error."""
    n = int(rng.choice([1, 7, 8, 15, 16, 31, 32, 33, 100, 1000, 2048]))
    binades = int(rng.choice([0, 1, 5, 12, 14, 15, 16, 17, 20, 26, 30, 60]))
    x = rng.random(n) + (rng.random(n) < 0.3)
    x *= 2.0 ** rng.integers(-binades, 1, n) * rng.choice([1, 1, -1], n if rng.random() < 0.5 else 1)
    x *= 2.0 ** rng.choice([0, 0, 900, -1000, -1040, 1010])
    if rng.random() < 0.2:
        x[rng.integers(n)] = rng.choice([0.0, -0.0, 5e-324, 1e-310])
    return x


@pytest.mark.parametrize("level", LEVELS)
def test_sums_that_are_proven_exact_are(level):
    rng, proofs, cases = np.random.default_rng(level), 0, 3000
    for _ in range(cases):
        x = drawn(rng)
        upper, lower, proven = halves(x, level)
        if proven and np.isfinite(upper):
            proofs += 1
            assert Fraction(upper) + Fraction(lower) == sum(map(Fraction, x.tolist()))
    assert cases / 8 < proofs < cases * 7 / 8


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "x",
    [
        [1.0] * 40 + [2.0**-60],
        [1.0 + 2.0**-25] * 40 + [2.0**30],
        [1e308] * 40,
        [np.inf, 1.0],
        [np.inf, -np.inf],
        [np.nan, 1.0],
        NANS,
        [2.0**-1074] * 33 + [1.0 + 2.0**-52],
    ],
)
def test_sums_with_an_error_are_never_proven(level, x):
    for at in range(0, len(x), 7):
        upper, lower, proven = halves(np.roll(x, at), level)
        assert not (proven and np.isfinite(upper) and np.isfinite(lower))


@pytest.mark.parametrize("level", LEVELS)
def test_numbers_of_like_size_are_proven(level):
    """Or exact sums take three times as long."""
    rng = np.random.default_rng(3)
    for x in (rng.random(2048), rng.standard_normal(2048), 1e-300 * rng.random(2048), rng.random(512) - 0.5):
        assert halves(x, level)[2]


def test_the_words_do_not_depend_on_the_way():
    """One wide number among many of like size changes the way that its stretch goes, and the words of no other."""
    rng = np.random.default_rng(4)
    for _ in range(30):
        x = rng.standard_normal(int(rng.integers(1, 60_000)))
        x[rng.integers(len(x), size=rng.integers(4))] *= 2.0 ** rng.integers(-200, 200)
        many, each = exact.zeros(), exact.zeros()
        exact.add(many, x)
        for part in np.array_split(x, max(1, len(x) // 20)):  # too few for anything but one by one
            exact.add(each, part)
        exact.carry(each)
        assert many.tobytes() == each.tobytes()
