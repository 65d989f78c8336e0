"""Norms: the root of the dot product of the same name, also where squares leave the range of the numbers."""

import math
import re
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels import registry

from .hard import arrays, bits, long_arrays
from .sums import HOST, TYPES, exact_terms, in_each_type, named, nans, sample

NORMS = [v for v in registry.variants("norm") if v.backend in HOST and v.unavailable() is None]
ORDERED = [v for v in NORMS if v.guarantee in ("none", "run")]
FAR = {
    "float64": (560, 900, -530, -700, -1000),
    "float32": (70, 100, -70, -110),
    "bfloat16": (70, 100, -70, -90),
}


def root(square):
    """The square root of a fraction, to 1200 bits after the point."""
    return math.isqrt(int(square * 4**1200)) / Fraction(2) ** 1200


def alone(variant):
    """With one thread, chance has no part."""
    return {"threads": 1} if "threads" in variant.parameters else {}


def test_every_dot_product_has_a_norm():
    assert [(v.name, v.backend, v.guarantee) for v in registry.variants("dot")] == [
        (v.name, v.backend, v.guarantee) for v in registry.variants("norm")
    ]
    dots = {(v.name, v.backend): v for v in registry.variants("dot")}
    for norm in registry.variants("norm"):
        assert norm.parameters == dots[norm.name, norm.backend].parameters


@in_each_type(NORMS)
def test_a_norm_is_the_root_of_the_dot_product(variant, kind):
    dot = registry.get("dot", variant.name, variant.backend)
    for n in (0, 1, 100, 5000):
        x = sample(n, kind, decades=3)
        assert bits(variant(x, **alone(variant))) == bits(np.sqrt(dot(x, x, **alone(variant))))


@in_each_type(ORDERED, FAR)
def test_a_norm_scales_with_its_vector(variant, kind):
    """By powers of two, exactly, though the squares of the scaled elements are infinite, subnormal or zero."""
    x = np.abs(sample(1000, kind, decades=1)) + TYPES[kind](1)
    expected = variant(x, **alone(variant))
    for power in FAR[kind]:
        far = np.ldexp(x.astype(np.float64), power).astype(TYPES[kind])
        assert bits(variant(far, **alone(variant))) == bits(np.ldexp(expected, power)), power


@in_each_type(NORMS)
def test_a_norm_is_off_by_little_at_the_ends_of_the_range(variant, kind):
    """n products and n - 1 additions, halved by the root, and the root itself: n/2 + 1 roundings of half an eps."""
    info = ml_dtypes.finfo(TYPES[kind])
    for x in (
        [info.max],
        [info.smallest_subnormal] * 4,
        [info.max / 4] * 9,
        [info.tiny, info.smallest_subnormal],
    ):
        x = np.array(x, TYPES[kind])
        norm = variant(x)
        true = root(sum(exact_terms([x, x])))
        number = np.finfo(norm.dtype)
        relative = Fraction(float(number.eps)) * (len(x) + 2) / 4
        assert abs(Fraction(float(norm)) - true) <= relative * true + Fraction(
            float(number.smallest_subnormal)
        )


@pytest.mark.parametrize("kind", TYPES)
@given(x=st.one_of(arrays(), long_arrays()))
@settings(deadline=None)
def test_the_exact_norm_is_less_than_one_unit_from_the_true_one(kind, x):
    with np.errstate(all="ignore"):
        x = x.astype(TYPES[kind])
    x = x[np.isfinite(x.astype(np.float64))]
    norm = registry.get("norm", "exact")(x)
    true = root(sum(exact_terms([x, x])))
    with np.errstate(over="ignore"):
        near = [float(np.nextafter(norm, norm.dtype.type(end))) for end in (-1, np.inf)]
    assert norm == true or (near[0] < true and (near[1] == np.inf or true < near[1]))


@named([v for v in NORMS if v.guarantee in ("layout", "exact")])
@given(x=st.one_of(arrays(), long_arrays()), seed=st.integers(0, 2**32))
@settings(deadline=None)
def test_a_promise_of_layout_holds_for_every_permutation(variant, x, seed):
    assert bits(variant(np.random.default_rng(seed).permutation(x))) == bits(variant(x))


@in_each_type(NORMS)
def test_of_several_nans_a_norm_is_the_root_of_their_dot_product(variant, kind):
    """The same bits, so that the promise for a NaN is that of the dot product (test_sum_inputs.py)."""
    dot = registry.get("dot", variant.name, variant.backend)
    for n in (6, 300, 5000):
        for turn in range(6):
            x = sample(n, kind)
            x[:: n // 6][:6] = np.roll(nans(kind), turn)
            x[1] = np.inf if turn % 2 and n > 6 else x[1]
            with np.errstate(invalid="ignore"):
                assert bits(variant(x, **alone(variant))) == bits(np.sqrt(dot(x, x, **alone(variant)))), turn


@in_each_type(NORMS)
def test_nan_infinities_and_zeros(variant, kind):
    number = np.dtype("float64" if kind == "float64" else "float32").type
    for x, expected in (
        ([], 0.0),
        ([-0.0, 0.0], 0.0),
        ([1.0, -np.inf], np.inf),
        ([np.inf, -np.inf], np.inf),
        ([np.inf, np.nan], np.nan),
        ([1.0, np.nan], np.nan),
    ):
        norm = variant(np.array(x, TYPES[kind]))
        assert norm.dtype == number
        assert np.isnan(norm) if np.isnan(expected) else bits(norm) == bits(number(expected))


@named(NORMS)
def test_other_arrays_are_refused(variant):
    whose = f"^{re.escape(f'norm {variant.name!r} ({variant.backend}): ')}cannot sum "
    with pytest.raises(TypeError, match=whose + "int64: convert it to one of"):
        variant(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match=whose + r"an array of shape \(2, 2\)"):
        variant(np.zeros((2, 2)))
