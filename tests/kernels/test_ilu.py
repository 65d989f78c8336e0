"""ILU(0) of diagonal blocks: L U = A on the pattern, independent blocks, and matrices without factors."""

from itertools import pairwise

import numpy as np
import pytest

from kernels.sparse import Csr, ilu

from .hard import bits
from .sparse import box, lanes

each_type = pytest.mark.parametrize("dtype", [np.float64, np.float32])


def sample(n, dtype=np.float64, seed=0, density=0.2):
    """A matrix that is not symmetric, dominated by its diagonal, with rows of many lengths."""
    rng = np.random.default_rng(seed)
    dense = rng.standard_normal((n, n)) * (rng.random((n, n)) < density * rng.random((n, 1)))
    np.fill_diagonal(dense, np.abs(dense).sum(1) + rng.random(n) + 0.1)
    return from_dense(dense.astype(dtype))


def from_dense(dense, stored=None) -> Csr:
    stored = dense != 0 if stored is None else stored
    indptr = np.concatenate([[0], np.cumsum(stored.sum(1))]).astype(np.int64)
    return Csr(indptr, np.nonzero(stored)[1].astype(np.int32), dense[stored], dense.shape[1])


def dense(a: Csr):
    """(values, pattern)"""
    values, stored = np.zeros((a.m, a.columns), a.dtype), np.zeros((a.m, a.columns), bool)
    values[a.row_of_entries(), a.indices] = a.data
    stored[a.row_of_entries(), a.indices] = True
    return values, stored


def inside(starts, n):
    """Which entries are within a block."""
    block = np.searchsorted(starts, np.arange(n), side="right")
    return block[:, None] == block[None, :]


def by_definition(a: Csr, starts):
    """L without its diagonal, and U: elimination row by row on the pattern, over dense rows (Saad, algorithm 10.4)."""
    values, stored = dense(a)
    stored &= inside(starts, a.m)
    w = np.where(stored, values[:, : a.m], 0)
    for i in range(a.m):
        for k in np.flatnonzero(stored[i, :i]):
            w[i, k] /= w[k, k]
            right = np.flatnonzero(stored[i] & stored[k])
            right = right[right > k]
            w[i, right] -= w[i, k] * w[k, right]
    return np.tril(w, -1), np.triu(w)


STARTS = [[0, 60], [0, 7, 7, 8, 31, 60], list(range(61))]
each_partition = pytest.mark.parametrize("starts", [np.array(s) for s in STARTS], ids=["one", "some", "rows"])


@each_type
@each_partition
def test_the_factors_are_those_of_elimination_on_the_pattern(dtype, starts):
    a = sample(60, dtype)
    lower, upper = by_definition(a, starts)
    for threads in (1, 2, 3):
        f = ilu.factor(a, starts, threads)
        assert bits(dense(f.lower)[0]) == bits(lower)
        assert bits(dense(f.upper)[0] + np.diag(f.pivots)) == bits(upper)
        assert not f.shifts.any() and f.shifts.shape == (len(starts) - 1,)


@each_partition
def test_the_product_of_the_factors_is_the_matrix_on_its_pattern(starts):
    a = sample(60, seed=1)
    f = ilu.factor(a, starts)
    values, stored = dense(a)
    stored &= inside(starts, 60)
    product = (dense(f.lower)[0] + np.eye(60)) @ (dense(f.upper)[0] + np.diag(f.pivots))
    size = (abs(dense(f.lower)[0]) + np.eye(60)) @ (abs(dense(f.upper)[0]) + np.diag(abs(f.pivots)))
    assert (abs(product - values)[stored] <= 60 * np.finfo(float).eps * size[stored]).all()
    fill = abs(product)[inside(starts, 60) & ~stored]
    assert fill.any() if len(fill) else len(starts) == 61


@each_type
def test_a_solve_takes_off_all_columns_but_the_nearest_and_then_that_one(dtype):
    a, starts = sample(60, dtype, 2), np.array([0, 25, 26, 60])
    r = np.random.default_rng(1).standard_normal(60).astype(dtype)
    lower, upper = by_definition(a, starts)
    expected = r.copy()
    for i in range(60):
        if lower[i].any():
            *others, nearest = np.flatnonzero(lower[i])
            expected[i] -= lanes(lower[i, others], expected[others], 0, len(others))
            expected[i] -= lower[i, nearest] * expected[nearest]
    for i in reversed(range(60)):
        if upper[i, i + 1 :].any():
            nearest, *others = np.flatnonzero(upper[i, i + 1 :]) + i + 1
            expected[i] -= lanes(upper[i, others], expected[others], 0, len(others))
            expected[i] -= upper[i, nearest] * expected[nearest]
        expected[i] *= dtype(1) / upper[i, i]
    for threads in (1, 2, 3):
        f = ilu.factor(a, starts, threads)
        z = np.full(63, 9, dtype)
        f.solve(r, z)
        assert bits(z[:60]) == bits(expected) and (z[60:] == 9).all()
        z[:60] = r
        f.solve(z, z)
        assert bits(z[:60]) == bits(expected)


def test_without_fill_to_drop_a_solve_is_that_of_the_matrix():
    """A tridiagonal matrix has no fill: L U is the whole of it."""
    n = 50
    values = np.diag(np.full(n, 2.5)) - np.diag(np.ones(n - 1), 1) - np.diag(np.ones(n - 1), -1)
    r, z = np.random.default_rng(0).standard_normal(n), np.zeros(n)
    ilu.factor(from_dense(values), np.array([0, n])).solve(r, z)
    assert np.allclose(z, np.linalg.solve(values, r), rtol=1e-13, atol=0)


@each_type
def test_a_block_is_factored_and_solved_alike_wherever_it_lies(dtype):
    a, starts = sample(90, dtype, 3), np.array([0, 20, 55, 90])
    r, z = np.random.default_rng(2).standard_normal(90).astype(dtype), np.zeros(90, dtype)
    f = ilu.factor(a, starts, 2)
    f.solve(r, z)
    values, stored = dense(a)
    for first, last in pairwise(starts):
        part = slice(first, last)
        alone = ilu.factor(from_dense(values[part, part], stored[part, part]), np.array([0, last - first]))
        y = np.zeros(last - first, dtype)
        alone.solve(r[part].copy(), y)
        assert bits(y) == bits(z[part])
        assert bits(alone.pivots) == bits(f.pivots[part])


def test_the_order_of_entries_in_a_row_does_not_matter():
    a = sample(40, seed=4)
    order = np.concatenate(
        [np.random.default_rng(i).permutation(np.arange(*a.indptr[i : i + 2])) for i in range(a.m)]
    )
    shuffled = Csr(a.indptr, a.indices[order], a.data[order], a.columns)
    f, g = (ilu.factor(m, np.array([0, 15, 40])) for m in (a, shuffled))
    for t, s in ((f.lower, g.lower), (f.upper, g.upper)):
        assert (bits(t.data), bits(t.indices)) == (bits(s.data), bits(s.indices))


def test_columns_of_other_ranks_are_ignored():
    a = sample(30, seed=5)
    more = np.repeat(np.arange(30), np.diff(a.indptr) + 1)
    ends = a.indptr[1:] + np.arange(30)
    indices, data = np.full(len(more), 33, np.int32), np.full(len(more), np.nan)
    indices[np.setdiff1d(np.arange(len(more)), ends)] = a.indices
    data[np.setdiff1d(np.arange(len(more)), ends)] = a.data
    wide = Csr(a.indptr + np.arange(31), indices, data, 40)
    f, g = (ilu.factor(m, np.array([0, 10, 30])) for m in (a, wide))
    assert (bits(f.pivots), bits(f.lower.data)) == (bits(g.pivots), bits(g.lower.data))


def test_it_speeds_up_the_iteration():
    a = box(6, 6, 6)
    f = ilu.factor(a, np.array([0, 216]), positive=True)
    values = dense(a)[0]
    inverse = np.zeros((216, 216))
    for k in range(216):
        z = np.zeros(216)
        f.solve(np.eye(216)[k], z)
        inverse[:, k] = z
    eigenvalues = np.linalg.eigvals(inverse @ values).real
    assert eigenvalues.max() / eigenvalues.min() < np.linalg.cond(values) / 2
    assert np.allclose(inverse, inverse.T, rtol=1e-12, atol=1e-15)


# ---- shifts

# Symmetric positive definite, but its incomplete factors have a pivot below zero (Kershaw 1978).
KERSHAW = np.array([[3.0, -2, 0, 2], [-2, 3, -2, 0], [0, -2, 3, -2], [2, 0, -2, 3]])


@each_type
def test_a_pivot_that_is_not_positive_makes_the_diagonal_of_its_block_larger(dtype):
    good = np.eye(2) * 2
    values = np.block([[good, np.zeros((2, 4))], [np.zeros((4, 2)), KERSHAW]]).astype(dtype)
    a, starts = from_dense(values), np.array([0, 2, 6])
    assert np.linalg.eigvalsh(KERSHAW).min() > 0
    assert by_definition(a, starts)[1].diagonal().min() < 0
    f = ilu.factor(a, starts, positive=True)
    assert f.shifts[0] == 0 and f.shifts[1] > 0 and (f.pivots > 0).all()
    steps = np.log2(f.shifts[1] / 1e-3)
    assert steps == int(steps)

    def pivots(shift):
        scaled = values + np.diag(np.r_[0, 0, np.diag(KERSHAW)] * shift).astype(dtype)
        return by_definition(from_dense(scaled), starts)[1].diagonal()

    assert pivots(f.shifts[1]).min() > 0 >= pivots(f.shifts[1] / 2).min()
    assert np.allclose(pivots(f.shifts[1]), f.pivots, rtol=1e-3)
    assert not ilu.factor(a, starts).shifts.any()


def test_a_pivot_that_is_zero_but_for_rounding_is_one_that_would_be_zero():
    values = np.array([[0.3, 0.1], [0.3, 0.1]])
    values[1, 1] = np.nextafter(values[1, 1], 1)
    f = ilu.factor(from_dense(values), np.array([0, 2]))
    assert f.shifts.tolist() == [1e-3]


# ---- what is refused


def changed(a, row, column, value):
    values, stored = dense(a)
    values[row, column], stored[row, column] = value, value is not None
    return from_dense(values, stored)


HALVES = np.array([0, 10, 20])


@pytest.mark.parametrize(
    "a, positive, message",
    [
        (changed(sample(20), 13, 13, None), False, r"row 13 \(block 1\) has no diagonal entry: store one"),
        (changed(sample(20), 4, 4, np.nan), False, r"row 4 \(block 0\) has an entry that is NaN"),
        (changed(sample(20), 12, 15, np.inf), False, r"row 12 \(block 1\) has an entry that is NaN or inf"),
        (
            changed(sample(20), 3, 3, -1.0),
            True,
            r"row 3 \(block 0\) has a diagonal entry that is not above zero",
        ),
        (changed(sample(20), 0, 0, 0.0), False, r"row 0 \(block 0\) has no usable pivot"),
        (
            Csr(np.array([0, 3, *range(4, 23)]), np.r_[0, 5, 5, 1:20].astype(np.int32), np.ones(22), 20),
            False,
            r"row 0 \(block 0\) has two entries in one column",
        ),
    ],
)
def test_a_matrix_that_cannot_be_factored_is_refused_with_its_row(a, positive, message):
    for threads in (1, 2):
        with pytest.raises(ValueError, match=r"ILU\(0\): " + message):
            ilu.factor(a, HALVES, threads, positive)


def test_arguments_that_do_not_fit_are_refused():
    a = sample(20)
    for starts in ([0, 10, 19], [1, 20], [0, 12, 11, 20], []):
        with pytest.raises(ValueError, match="starts must ascend from 0 to the 20 rows"):
            ilu.factor(a, np.array(starts, np.int64))
    with pytest.raises(TypeError, match="starts must be a NumPy vector of int64"):
        ilu.factor(a, [0, 20])
    with pytest.raises(ValueError, match="has `rows`"):
        ilu.factor(Csr(a.indptr, a.indices, a.data, 20, np.arange(20, dtype=np.int32)), HALVES)
    with pytest.raises(ValueError, match="threads -1"):
        ilu.factor(a, HALVES, -1)
    f = ilu.factor(a, HALVES)
    with pytest.raises(ValueError, match=r"z has shape \(19,\), expected a contiguous vector of 20 or more"):
        f.solve(np.zeros(20), np.zeros(19))
    with pytest.raises(TypeError, match="r is float32, expected a NumPy array of float64"):
        f.solve(np.zeros(20, np.float32), np.zeros(20))


def test_bytes_and_operations():
    f = ilu.factor(from_dense(np.array([[2.0, 1, 0], [1, 2, 1], [0, 1, 2]])), np.array([0, 3]))
    assert (f.flops, f.nbytes) == (2 * 4 + 3, 4 * (8 + 4) + 2 * 4 * 8 + 3 * 3 * 8)
