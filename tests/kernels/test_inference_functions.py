"""The functions of `static`: their errors, also at the ends of their range."""

from __future__ import annotations

import numpy as np
import pytest

from kernels.inference.lower import plan
from kernels.inference.static import Static

from .inference_cases import graph

N = 1 << 16
TRUTH = {
    "exp": np.exp,
    "tanh": np.tanh,
    "log": np.log,
    "sigmoid": lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x))),
}
# The largest errors over 10^8 floats and more, in ulp of the result; docs/explanation/inference.md has them.
ERRORS = {"exp": 1.0, "tanh": 1.34, "log": 0.83, "sigmoid": 2.5}


def applied(operation: str, x: np.ndarray) -> np.ndarray:
    return Static(plan(graph(x.shape, (operation, x.shape))))(x[None])[0]


@pytest.mark.parametrize("operation", TRUTH)
def test_errors_are_within_what_is_stated(operation):
    rng = np.random.default_rng(0)
    patterns = rng.integers(0, 2**32, N, dtype=np.uint64).astype(np.uint32).view(np.float32)
    near = rng.uniform(-20, 20, N).astype(np.float32)
    for x in (patterns, near, near / 16):
        x = np.abs(x) if operation == "log" else x
        with np.errstate(all="ignore"):
            y, truth = applied(operation, x), TRUTH[operation](x.astype(np.float64))
            rounded = truth.astype(np.float32)
        assert np.array_equal(np.isnan(y), np.isnan(rounded))
        finite = np.isfinite(rounded)
        assert np.array_equal(y[~finite & ~np.isnan(y)], rounded[~finite & ~np.isnan(rounded)])
        ulp = np.spacing(np.abs(rounded[finite])).astype(np.float64)
        assert (np.abs(y[finite] - truth[finite]) / ulp).max() <= ERRORS[operation]


@pytest.mark.parametrize(
    "operation, x, y",
    [
        (
            "exp",
            [0, -0.0, np.inf, -np.inf, 88.72283, -104, -103.9],
            [1, 1, np.inf, 0, 3.402798e38, 0, 1.4e-45],
        ),
        ("tanh", [0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-40], [0.0, -0.0, 1, -1, 1e-45, -1e-40]),
        ("log", [0.0, -0.0, np.inf, 1, 1e-45], [-np.inf, -np.inf, np.inf, 0, -103.27893]),
        ("sigmoid", [np.inf, -np.inf, 0, -100], [1, 0, 0.5, 3.8e-44]),
    ],
)
def test_ends_of_the_range(operation, x, y):
    out = applied(operation, np.array(x, np.float32))
    np.testing.assert_allclose(out, np.array(y, np.float32), rtol=2e-5)
    zero = out == 0
    assert np.array_equal(np.signbit(out[zero]), np.signbit(np.array(y, np.float32)[zero]))


@pytest.mark.parametrize("operation, x", [("log", -1.0), ("log", -np.inf), ("sqrt", -1.0)])
def test_where_there_is_no_value_there_is_the_one_nan(operation, x):
    out = applied(operation, np.array([x], np.float32))
    assert out.view(np.int32)[0] == 0x7FC00000
