"""Scatter-adds on the GPU: the bits of their definitions, whatever the order of blocks and threads.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import ml_dtypes
import numpy as np
import pytest

import kernels.scatter  # noqa: F401 - registers its variants
from kernels import registry
from kernels.scatter import cupy as gpu
from kernels.scatter import reference

from .bins import order_free
from .hard import bits

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(gpu.missing()), reason=gpu.missing() or "")]

NAMES = ["atomic", "sorted", "exact"]
TYPES = [np.float64, np.float32, np.float16, ml_dtypes.bfloat16]
SIZES = [(0, 0, None), (0, 5, None), (1, 1, None), (5, 3, 0), (257, 3, None), (999, 50, None), (999, 5, 7)]


def on_device(x, index):
    """Arguments for a variant: bfloat16 passes as its bits."""
    import cupy

    if x.dtype.name == "bfloat16":
        return (cupy.asarray(x.view(np.uint16)), cupy.asarray(index)), {"dtype": "bfloat16"}
    return (cupy.asarray(x), cupy.asarray(index)), {}


def run(name, x, index, bins):
    arrays, more = on_device(x, index)
    return registry.get("scatter_add", name, "cupy")(*arrays, bins, **more).get()


def sample(n, bins, columns, dtype, seed=0, decades=6):
    rng = np.random.default_rng(seed)
    shape = n if columns is None else (n, columns)
    x = rng.standard_normal(shape) * 10.0 ** rng.integers(-decades, 1, shape)
    return x.astype(dtype), rng.integers(0, max(bins, 1), n)


def same_bits(result, expected):
    return (
        result.dtype == expected.dtype and result.shape == expected.shape and bits(result) == bits(expected)
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("index_type", [np.int32, np.int64])
def test_sorted_segments_have_the_bits_of_the_reference(dtype, index_type):
    for n, bins, columns in SIZES:
        x, index = sample(n, bins, columns, dtype)
        index = index.astype(index_type)
        assert same_bits(run("sorted", x, index, bins), reference.ascending(x, index, bins))


@pytest.mark.parametrize("dtype", TYPES)
def test_exact_sums_are_those_of_the_definition(dtype):
    for n, bins, columns in SIZES:
        x, index = sample(n, bins, columns, dtype, decades=3 if dtype is np.float16 else 30)
        assert same_bits(run("exact", x, index, bins), order_free(x, index, bins))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_the_ends_of_the_range(dtype):
    most, least = np.finfo(dtype).max, np.finfo(dtype).smallest_subnormal
    for values in (
        [most, most, -most],
        [most, most],
        [-most, -most],
        [least] * 5,
        [-least, 3 * least],
        [-0.0],
    ):
        x, index = np.array(values, dtype), np.zeros(len(values), np.int64)
        assert same_bits(run("exact", x, index, 1), order_free(x, index, 1))


@pytest.mark.parametrize("name", NAMES)
def test_integers_add_up_in_any_order(name):
    for n, bins, columns in SIZES:
        x, index = sample(n, bins, columns, np.float32)
        x = np.rint(100 * x)
        assert same_bits(run(name, x, index, bins), reference.ascending(x, index, bins))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_values_that_are_not_finite_follow_ieee_rules_in_their_bin_and_leave_the_others_alone(name, dtype):
    x = np.array([np.inf, 1, -np.inf, 2, np.inf, -np.inf, np.nan, 3, 0.25, -0.0], dtype)
    out = run(name, x, np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 5]), 7)
    assert same_bits(out[[0, 1, 4, 5, 6]], np.array([np.inf, -np.inf, 0.25, 0, 0], dtype))
    assert np.isnan(out[2:4]).all()


def test_parts_of_the_input_and_of_the_cells_add_up(monkeypatch):
    """Parts of 16 rows in place of 2**30, and words for 8 cells at once in place of 256 MiB."""
    monkeypatch.setattr(gpu, "EXACT_ROWS", 16)
    for dtype in (np.float64, np.float32):
        x, index = sample(300, 5, 7, dtype)
        scatter = gpu.checked("exact", *on_device(x, index)[0], 5)
        assert same_bits(gpu.queue_exact(scatter, scratch=8 * 67 * 8).get(), order_free(x, index, 5))


def test_strided_arrays_are_added_like_their_copies():
    x, index = sample(600, 9, 4, np.float64)
    (dx, di), _ = on_device(x, index)
    expected = reference.ascending(x[::-2, 1:3], index[::-2], 9)
    assert same_bits(
        registry.get("scatter_add", "sorted", "cupy")(dx[::-2, 1:3], di[::-2], 9).get(), expected
    )


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("bad", [-1, 5, 2**40])
def test_the_first_bad_index_is_named(name, bad):
    x, index = sample(700, 5, None, np.float32)
    index[[300, 650]] = bad
    with pytest.raises(IndexError, match=rf"index\[300\] is {bad}, but 5 bins allow 0 ... 4"):
        run(name, x, index, 5)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x, i: gpu.atomic(x.get(), i, 3), r"scatter_add 'atomic' \(cupy\): expected arrays of CuPy"),
        (lambda x, i: gpu.ordered(x.astype(np.int64), i, 3), r"'sorted' \(cupy\) cannot add int64"),
        (
            lambda x, i: gpu.exact(x, i.astype(np.uint16), 3),
            r"'exact' \(cupy\) cannot take an index of uint16",
        ),
        (lambda x, i: gpu.exact(x, i[1:], 3), r"'exact' \(cupy\) has an index of shape \(9,\)"),
        (lambda x, i: gpu.atomic(x, i, -1), r"'atomic' \(cupy\) cannot have -1 bins"),
    ],
)
def test_what_no_kernel_takes_is_refused(call, message):
    x, index = sample(10, 3, None, np.float64)
    with pytest.raises((TypeError, ValueError), match=message):
        call(*on_device(x, index)[0])
