"""Scatter-adds: each variant adds in the order it states, keeps its promise, and refuses what it cannot add."""

import ml_dtypes
import numpy as np
import pytest

import kernels.scatter  # noqa: F401 - registers its variants
from kernels import registry
from kernels.scatter import reference
from kernels.scatter.orders import ORDERS

from .hard import bits

VARIANTS = registry.variants("scatter_add")
HERE = [v for v in VARIANTS if v.unavailable() is None]
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
INDICES = [np.int32, np.int64]


def named(variants):
    return pytest.mark.parametrize("variant", variants, ids=lambda v: f"{v.name}-{v.backend}")


def stated(x, index, bins):
    """The definition, one addition at a time."""
    accumulator = np.float64 if x.dtype == np.float64 else np.float32
    out = np.zeros((bins, *x.shape[1:]), dtype=accumulator)
    for row, b in zip(x, index, strict=True):
        out[b] = out[b] + row.astype(accumulator)
    return out


def sample(n, bins, dtype, columns=None, seed=0):
    rng = np.random.default_rng(seed)
    shape = n if columns is None else (n, columns)
    return rng.standard_normal(shape).astype(dtype), rng.integers(0, max(bins, 1), n)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("columns", [None, 3])
def test_the_reference_is_the_definition(dtype, columns):
    x, index = sample(500, 20, dtype, columns)
    assert bits(reference.ascending(x, index, 20)) == bits(stated(x, index, 20))


@named(HERE)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index_type", INDICES)
@pytest.mark.parametrize(
    "n, bins, columns", [(0, 0, None), (0, 5, None), (5, 3, 0), (999, 50, None), (999, 50, 7)]
)
def test_integers_add_up_in_any_order(variant, dtype, index_type, n, bins, columns):
    x, index = sample(n, bins, dtype, columns)
    x = np.rint(x).astype(dtype)
    out = variant(x, index.astype(index_type), bins)
    expected = stated(x, index, bins)
    assert out.dtype == expected.dtype and out.shape == expected.shape
    assert bits(out) == bits(expected)


@named(HERE)
def test_an_index_out_of_range_is_named_with_its_place(variant):
    x = np.ones(4, dtype=np.float32)
    with pytest.raises(IndexError, match=r"index\[2\] is 7, but 3 bins allow 0 ... 2$"):
        variant(x, np.array([0, 2, 7, -1]), 3)
    with pytest.raises(IndexError, match=r"index\[1\] is -1, .* negative indices do not count from the end"):
        variant(x, np.array([0, -1, 1, 3]), 3)
    with pytest.raises(IndexError, match=r"index\[0\] is 0, but 0 bins allow nothing"):
        variant(x, np.zeros(4, dtype=np.int32), 0)


@named(HERE)
def test_what_cannot_be_added_is_refused_by_name(variant):
    where = rf"scatter_add {variant.name!r} \({variant.backend}\)"
    x, index = np.ones(4), np.zeros(4, dtype=np.int64)
    with pytest.raises(TypeError, match=where + " cannot add int64: .* float64, float32, float16, bfloat16"):
        variant(x.astype(np.int64), index, 1)
    with pytest.raises(TypeError, match=where + " cannot take an index of uint8: .* int32, int64"):
        variant(x, index.astype(np.uint8), 1)
    with pytest.raises(ValueError, match=where + r" cannot add elements of shape \(1, 2, 2\)"):
        variant(x.reshape(1, 2, 2), index[:1], 1)
    with pytest.raises(
        ValueError, match=where + r" has an index of shape \(3,\) for elements of shape \(4,\)"
    ):
        variant(x, index[:3], 1)
    with pytest.raises(ValueError, match=where + r" cannot have -1 bins"):
        variant(x, index, -1)
    with pytest.raises(TypeError, match=where + r" needs an integer number of bins, not 1.5"):
        variant(x, index, 1.5)


def test_every_order_is_registered_with_its_promise():
    assert {v.name for v in VARIANTS} <= set(ORDERS)
    assert all((v.guarantee, v.why) == (ORDERS[v.name].guarantee, ORDERS[v.name].why) for v in VARIANTS)
