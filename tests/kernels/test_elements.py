"""Functions of an element by fixed operations: their bits follow the element alone, and their errors are small."""

import math

import numpy as np
import pytest

from kernels.contract.elements import ELEMENTS, element
from kernels.contract.native import LEVELS


def drawn(n=20_001):
    """Elements of all sizes: vectors of small ones, of middle ones, of mixed ones, and all patterns of bits."""
    rng = np.random.default_rng(1)
    patterns = rng.integers(0, 2**32, n, dtype=np.uint64).astype(np.uint32).view(np.float32)
    normal = rng.standard_normal(n)
    scaled = [(scale * normal).astype(np.float32) for scale in (1 / 8, 1, 3, 40)]
    return np.concatenate([*scaled, patterns])


def bits(x):
    return np.asarray(x).view(np.uint32)


@pytest.mark.parametrize("name", ELEMENTS)
def test_neither_the_place_nor_the_instruction_set_changes_a_bit(name):
    x = drawn()
    there = np.random.default_rng(2).permutation(len(x))
    with np.errstate(all="ignore"):
        first = element(name, x, level=LEVELS[0])
        for level in LEVELS:
            np.testing.assert_array_equal(bits(element(name, x[there], level=level)), bits(first)[there])
        for n in (0, 1, 15, 2048, 2049):
            np.testing.assert_array_equal(bits(element(name, x[:n])), bits(first)[:n])
        factor = drawn()[there]
        expected = first * factor
        expected[np.isnan(expected)] = np.nan
        np.testing.assert_array_equal(bits(element(name, x, factor=factor)), bits(expected))


@pytest.mark.parametrize(
    "name, truth, ulps",
    [
        ("erf", math.erf, 2.3),
        ("gelu", lambda x: x * math.erfc(-x / math.sqrt(2)) / 2, None),
        (
            "gelu_slope",
            lambda x: math.erfc(-x / math.sqrt(2)) / 2 + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi),
            None,
        ),
    ],
)
def test_errors(name, truth, ulps):
    """In ULP of the result for erf. GELU is a share of x, with an error of about 1e-7, and its slope such a share."""
    x = np.linspace(-6, 6, 120_001).astype(np.float32)
    y, exact = element(name, x), np.array([truth(v) for v in x.astype(np.float64).tolist()])
    error = np.abs(y - exact)
    unit = np.spacing(np.abs(exact.astype(np.float32))).astype(np.float64)
    if ulps is None:
        unit, ulps = np.maximum(np.abs(x.astype(np.float64)), 1) * 2.0**-23, 1.5
    assert (error / unit).max() <= ulps, (error / unit).max()


def test_wrong_operands_are_refused():
    with pytest.raises(TypeError, match="factor is of float64"):
        element("exp", np.zeros(3, np.float32), factor=np.zeros(3))
    with pytest.raises(ValueError, match=r"factor is \(2,\), and x is \(3,\)"):
        element("exp", np.zeros(3, np.float32), factor=np.zeros(2, np.float32))
    assert element("exp", np.zeros((), np.float32)).shape == ()
