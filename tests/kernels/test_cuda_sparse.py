"""Sparse products on the GPU: the bits of the CPU, whatever the order of blocks and threads.

They need a device; `test_cuda_on_host.py` runs this file without one.
"""

import numpy as np
import pytest

from kernels.sparse import Csr, native, reference
from kernels.sparse import cupy as gpu

from .hard import bits
from .sparse import box, hard, matrix, vector

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(bool(gpu.missing()), reason=gpu.missing() or "")]

each_type = pytest.mark.parametrize("dtype", [np.float64, np.float32])
PLANNERS = [gpu.csr, gpu.merge, gpu.coo_atomic]
each = pytest.mark.parametrize("planner", PLANNERS, ids=lambda p: p.__name__)


def run(planner, a, x, **chosen):
    """A x, where every place of y that no row goes to still holds what it held."""
    import cupy

    y = cupy.asarray(np.full(a.least + 3, 7, a.dtype))
    planner(a, **chosen)(cupy.asarray(x), y)
    y = y.get()
    untouched = np.ones(len(y), bool)
    untouched[a.places] = False
    assert (y[untouched] == 7).all()
    return y[a.places]


def on_cpu(planner, a, x, **chosen):
    y = np.zeros(a.least, a.dtype)
    planner(a, **chosen)(x, y)
    return y[a.places]


def mapped(a):
    places = np.random.default_rng(3).permutation(2 * a.m)[: a.m].astype(np.int32)
    return Csr(a.indptr, a.indices, a.data, a.columns, places)


@each_type
def test_rows_have_the_bits_of_the_reference(dtype):
    for a in (hard(dtype), box(5, 4, 6, dtype), matrix([0, 1, 0], 3, dtype)):
        x = vector(a.columns, dtype)
        assert bits(run(gpu.csr, a, x)) == bits(on_cpu(reference.csr, a, x))
        assert bits(run(gpu.csr, mapped(a), x)) == bits(on_cpu(reference.csr, a, x))


@each_type
def test_a_grid_that_is_smaller_than_the_matrix(dtype, monkeypatch):
    monkeypatch.setattr(gpu, "BLOCKS", 2)
    a = matrix(np.random.default_rng(0).integers(0, 6, 700), 50, dtype)
    x = vector(50, dtype)
    assert bits(run(gpu.csr, a, x)) == bits(on_cpu(reference.csr, a, x))
    pieces = -(-(a.m + a.nnz) // 3)
    assert bits(run(gpu.merge, a, x, items=3)) == bits(on_cpu(native.merge, a, x, threads=pieces))
    whole = np.ones(50, dtype)
    integers = Csr(a.indptr, a.indices, np.rint(a.data % 100).astype(dtype), 50)
    assert bits(run(gpu.coo_atomic, integers, whole)) == bits(on_cpu(reference.csr, integers, whole))


@each_type
@pytest.mark.parametrize("items, missing", [(1, 0), (4, 0), (4, 1), (15, 0), (15, 1), (48, 1)])
@pytest.mark.parametrize(
    "lengths", [[3, 0, 27, 1, 200, 0, 0, 5], [40] * 9, [0] * 7, [1000], [14] * 3, [0, 15]]
)
def test_pieces_of_the_merge_path_have_the_bits_of_the_cpu_with_as_many_threads(
    dtype, items, missing, lengths
):
    """A last row brings the path to whole pieces, or to one item less, so that the CPU cuts it alike."""
    last = -(sum(lengths) + len(lengths) + 1 + missing) % items
    a = matrix([*lengths, last + items], 60, dtype, seed=len(lengths))
    pieces = -(-(a.m + a.nnz) // items)
    x = vector(60, dtype)
    expected = bits(on_cpu(native.merge, a, x, threads=pieces))
    assert bits(run(gpu.merge, a, x, items=items)) == expected
    assert bits(run(gpu.merge, mapped(a), x, items=items)) == expected


@each
@each_type
def test_exact_sums_are_the_same_in_any_order(planner, dtype):
    for a in (
        box(4, 5, 3, dtype),
        matrix([], 4, dtype),
        matrix([0], 4, dtype),
        matrix([300, 0, 2], 9, dtype),
    ):
        a = Csr(a.indptr, a.indices, np.rint(a.data % 64).astype(dtype), a.columns)
        x = np.arange(a.columns).astype(dtype)
        for placed in (a, mapped(a)):
            assert bits(run(planner, placed, x)) == bits(on_cpu(reference.csr, a, x))


@each
@each_type
def test_values_that_are_not_finite_flow_into_their_rows_alone(planner, dtype):
    inf, nan = np.inf, np.nan
    dense = np.array([[1, 2, 0], [0, inf, 0], [0, inf, -inf], [nan, 0, 1], [0, 0, 4]], dtype)
    stored = dense != 0
    indptr = np.concatenate([[0], np.cumsum(stored.sum(1))])
    a = Csr(indptr, np.nonzero(stored)[1].astype(np.int32), dense[stored], 3)
    y = run(planner, a, np.ones(3, dtype))
    assert np.array_equal(y, np.array([3, inf, nan, nan, 4], dtype), equal_nan=True)


def test_what_no_kernel_takes_is_refused():
    import cupy

    a = matrix([2, 3], 4)
    x, y = cupy.zeros(4), cupy.zeros(2)
    for planner in PLANNERS:
        p = planner(a)
        with pytest.raises(TypeError, match=r"x is float64 of numpy, expected a cupy.* array of float64"):
            p(x.get(), y)
        with pytest.raises(TypeError, match="y is float32 of cupy"):
            p(x, y.astype(np.float32))
        with pytest.raises(
            ValueError, match=r"x has shape \(3,\), expected a contiguous vector of 4 or more"
        ):
            p(x[:3], y)
    for items in (0, 49):
        with pytest.raises(ValueError, match=r"spmv merge \(cupy\): items .*: choose 1 ... 48"):
            gpu.merge(a, items=items)
