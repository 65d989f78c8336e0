"""Means against rational arithmetic."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernels import _native

TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
BIG = {"float64": 1.7e308, "float32": 3e38, "float16": 40000.0, "bfloat16": 3e38}
LEAST = {"float64": 5e-324, "float32": 1e-45, "float16": 2.0**-24, "bfloat16": 2.0**-133}


def mean(rows, divisor):
    out = np.empty(rows.shape[1], rows.dtype)
    _native.exact_mean(list(rows), divisor, out)
    return out


def nearest(value, dtype):
    """The number of the type nearest to a fraction, to even where two are."""
    info, sign = ml_dtypes.finfo(dtype), -1 if value < 0 else 1
    value = abs(value)
    if value == 0:
        return 0.0
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    exponent -= value < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, int(info.minexp)) - info.nmant)
    units = round(value / unit)  # to even
    # Built from a power of two, as fractions beyond the range of float64 are no floats.
    magnitude = units * unit
    return sign * (float(magnitude) if magnitude <= Fraction(float(info.max)) else np.inf)


@pytest.mark.parametrize("dtype", TYPES)
def test_means_are_rounded_once(dtype):
    draw = np.random.default_rng(7)
    spread = {np.float64: 300, np.float32: 36, np.float16: 4, ml_dtypes.bfloat16: 36}[dtype]
    for ranks, divisor in ((1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (7, 4095)):
        for scale in (1, 10 ** -float(spread), 2.0 ** draw.integers(-10, 10)):
            rows = (draw.standard_normal((ranks, 60)) * scale).astype(dtype)
            rows[:, :10] *= (2.0 ** draw.integers(-14, 3, (ranks, 10))).astype(dtype)
            if ranks > 1:
                rows[1, 20:30] = -rows[0, 20:30]  # cancels
            found = mean(rows, divisor).astype(np.float64)
            for i, column in enumerate(rows.astype(np.float64).T):
                expected = nearest(sum(map(Fraction, column.tolist()), Fraction()) / divisor, dtype)
                assert found[i] == expected, (ranks, divisor, column.tolist())


@pytest.mark.parametrize("dtype", TYPES)
def test_a_mean_that_the_type_has_is_found(dtype):
    name = np.dtype(dtype).name
    rows = np.array([[BIG[name], LEAST[name], np.inf, np.nan, np.inf, -0.0]] * 2, dtype)
    rows[1, 4] = -np.inf
    found = mean(rows, 2)
    assert found[:3].tolist() == rows[0, :3].tolist()
    assert np.isnan(found[3:5].astype(np.float64)).all() and not np.signbit(found[5].astype(np.float64))
    assert np.isinf(mean(np.array([[BIG[name]], [BIG[name]]], dtype), 1).astype(np.float64)).all()
