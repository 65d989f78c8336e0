"""Preconditioners on one rank: what they are, that they are symmetric and positive, and whom they refuse."""

from itertools import pairwise

import numpy as np
import pytest
from mpi4py import MPI
from numpy.polynomial import chebyshev as polynomials

from kernels.guarantees import ChoiceError
from miniapps.layout.rows import Rows
from miniapps.linear.box import Box
from miniapps.linear.entries import interpolation, rows
from miniapps.linear.matrix import Matrix
from miniapps.linear.preconditioners import NAMES, PreconditionerError, make
from miniapps.linear.preconditioners.multigrid import COARSEST, hierarchy, inverted
from miniapps.linear.preconditioners.plans import MOST, Plans
from miniapps.linear.stencils import stencil

SYMMETRIC = ("poisson27", "poisson7", "anisotropic")
REAL = [name for name in NAMES if name != "none"]


class Problem:
    """A box, its stencil and its matrix on one rank; `make(name)` makes a preconditioner of it."""

    def __init__(
        self, shape, block, kind="poisson7", backend="native", dtype="float64", threads=1, **parameters
    ):
        self.box = Box(*shape, block)
        self.stencil = stencil(kind, self.box.h, **parameters)
        owned = Rows(self.box.starts)
        self.backend, self.threads = backend, threads
        entries = rows(self.box, self.stencil, owned.own)
        self.matrix = Matrix(
            MPI.COMM_SELF, owned, owned, entries, backend=backend, dtype=dtype, threads=threads
        )

    def make(self, name, **options):
        return make(
            name,
            self.matrix,
            box=self.box,
            stencil=self.stencil,
            backend=self.backend,
            threads=self.threads,
            **options,
        )

    def vector(self, seed=0):
        x = self.matrix.operand()
        x[:] = np.random.default_rng(seed).standard_normal(len(x))
        return x

    def dense(self):
        return columns(self.matrix.apply, self.matrix)


def columns(apply, matrix):
    """The dense matrix of `apply`, unit vector by unit vector."""
    dense = np.empty((matrix.n, matrix.n))
    x, y = matrix.operand(), matrix.operand()
    for j in range(matrix.n):
        x[:], y[:] = 0.0, np.nan  # what y held before must not matter
        x[j] = 1.0
        apply(x, y)
        dense[:, j] = y
    return dense


def dense_entries(arrays, shape):
    indptr, at, data = arrays
    dense = np.zeros(shape)
    dense[np.repeat(np.arange(shape[0]), np.diff(indptr)), at] = data
    return dense


def test_none_is_none():
    assert Problem((2, 2, 2), (2, 2, 2)).make("none") is None


def test_jacobi_divides_by_the_diagonal():
    problem = Problem((3, 4, 5), (2, 2, 2), "anisotropic")
    r, z = problem.vector(), problem.matrix.operand()
    problem.make("jacobi").apply(r, z)
    assert np.array_equal(z, (1.0 / problem.matrix.diagonal()) * r)


@pytest.mark.parametrize("degree", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", SYMMETRIC)
def test_chebyshev_is_the_polynomial_of_its_name(kind, degree):
    problem = Problem((4, 3, 5), (2, 3, 2), kind)
    precondition = problem.make("chebyshev", degree=degree, ratio=10.0)
    upper, lower = precondition.upper, precondition.upper / 10.0
    root = np.sqrt(problem.matrix.diagonal())
    values, vectors = np.linalg.eigh(problem.dense() / np.outer(root, root))
    assert values.max() <= upper

    def at(x):
        return polynomials.chebval((upper + lower - 2.0 * x) / (upper - lower), [0.0] * degree + [1.0])

    expected = vectors @ np.diag((1.0 - at(values) / at(0.0)) / values) @ vectors.T / np.outer(root, root)
    operator = columns(precondition.apply, problem.matrix)
    assert np.abs(operator - expected).max() <= 1e-13 * np.abs(expected).max()


def test_block_jacobi_solves_blocks_that_have_no_fill_in():
    problem = Problem((1, 1, 23), (1, 1, 5))
    a, starts = problem.dense(), problem.box.starts
    expected = np.zeros_like(a)
    for first, last in pairwise(starts):
        expected[first:last, first:last] = np.linalg.inv(a[first:last, first:last])
    operator = columns(problem.make("block-jacobi").apply, problem.matrix)
    assert np.abs(operator - expected).max() <= 1e-14 * np.abs(expected).max()


def test_block_jacobi_shifts_where_pivots_would_not_be_positive_if_the_diagonal_is():
    entries = np.array([0, 2, 4]), np.array([0, 1, 0, 1]), np.array([1.0, 2.0, 2.0, 1.0])
    owned = Rows(np.array([0, 2]))
    precondition = make("block-jacobi", Matrix(MPI.COMM_SELF, owned, owned, entries))
    assert precondition.shifts.tolist() == [1.024]
    for negative in (0, 3):  # an indefinite matrix has the factors that it has
        data = entries[2].copy()
        data[negative] = -1.0
        matrix = Matrix(MPI.COMM_SELF, owned, owned, (*entries[:2], data))
        indefinite = make("block-jacobi", matrix)
        assert indefinite.shifts.tolist() == [0.0]
        assert np.allclose(
            columns(indefinite.apply, matrix) @ columns(matrix.apply, matrix), np.eye(2), atol=1e-15
        )


@pytest.mark.parametrize("degree", [1, 2, 3])
@pytest.mark.parametrize("kind", SYMMETRIC)
def test_multigrid_is_a_v_cycle(kind, degree):
    problem = Problem((5, 9, 11), (2, 4, 3), kind)
    levels = hierarchy(problem.box, problem.stencil)
    assert len(levels) > 2

    def matrix_of(box, of):
        return dense_entries(rows(box, of, np.arange(box.count)), (box.n, box.n))

    def smoothed(a, bound, x, b):
        """Chebyshev by its roots: the error is multiplied by the product of (1 - D^-1 A / root)."""
        roots = bound * (0.625 + 0.375 * np.cos(np.pi * (np.arange(degree) + 0.5) / degree))
        for root in roots:
            x = x + (b - a @ x) / (root * np.diag(a)[:, None])
        return x

    def cycle(level, b):
        (box, of), a = levels[level], matrix_of(*levels[level])
        if level + 1 == len(levels):
            return np.linalg.solve(a, b)
        coarse = levels[level + 1][0]
        p = dense_entries(interpolation(box, coarse, np.arange(box.count)), (box.n, coarse.n))
        assert np.allclose(p.T @ a @ p, matrix_of(*levels[level + 1]), rtol=1e-13, atol=1e-13)
        x = smoothed(a, of.bound(), np.zeros_like(b), b)
        x = x + p @ cycle(level + 1, p.T @ (b - a @ x))
        return smoothed(a, of.bound(), x, b)

    expected = cycle(0, np.eye(problem.box.n))
    operator = columns(problem.make("multigrid", degree=degree).apply, problem.matrix)
    assert np.abs(operator - expected).max() <= 1e-12 * np.abs(expected).max()


@pytest.mark.parametrize("kind", SYMMETRIC)
@pytest.mark.parametrize("name", REAL)
def test_they_are_symmetric_and_positive(name, kind):
    problem = Problem((6, 5, 9), (3, 2, 4), kind)
    precondition = problem.make(name)
    assert precondition.symmetric
    m = columns(precondition.apply, problem.matrix)
    assert np.abs(m - m.T).max() <= 8 * np.finfo(float).eps * np.abs(m).max()
    assert np.linalg.eigvalsh((m + m.T) / 2).min() > 0.0
    x, y, mx, my = problem.vector(1), problem.vector(2), problem.matrix.operand(), problem.matrix.operand()
    precondition.apply(x, mx)
    precondition.apply(y, my)
    assert abs(x @ my - y @ mx) <= 1e-14 * np.linalg.norm(x) * np.linalg.norm(my)


def iterations(problem, precondition, tolerance=1e-8):
    """Of conjugate gradients for the right side of ones."""
    apply, b = problem.matrix.apply, np.ones(problem.box.n)
    r, z, p, w = b.copy(), np.empty_like(b), np.empty_like(b), np.empty_like(b)
    precondition.apply(r, z)
    p[:] = z
    gamma, count = r @ z, 0
    while np.linalg.norm(r) > tolerance * np.linalg.norm(b) and count < 100:
        apply(p, w)
        alpha = gamma / (p @ w)
        r -= alpha * w
        precondition.apply(r, z)
        before, gamma = gamma, r @ z
        p[:] = z + gamma / before * p
        count += 1
    return count


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        ("poisson27", {}),
        ("poisson7", {}),
        ("anisotropic", {"eps_z": 0.01, "eps_y": 0.1}),
        ("anisotropic", {"eps_z": 1e-4, "eps_y": 1.0}),
        ("anisotropic", {"eps_z": 100.0, "eps_y": 100.0}),
    ],
)
def test_iterations_with_multigrid_do_not_grow_with_the_problem(kind, parameters):
    counts = []
    for shape in ((16, 16, 16), (32, 32, 32), (33, 47, 30)):
        problem = Problem(shape, (8, 8, 8), kind, **parameters)
        counts.append(iterations(problem, problem.make("multigrid")))
    assert max(counts) - min(counts) <= 2 and max(counts) <= 8, counts


@pytest.mark.parametrize("name", ["chebyshev", "block-jacobi"])
def test_the_others_save_iterations_too(name):
    problem = Problem((16, 16, 16), (8, 8, 8), "poisson7")
    with_jacobi = iterations(problem, problem.make("jacobi"))
    assert iterations(problem, problem.make(name)) < 0.75 * with_jacobi


@pytest.mark.parametrize("name", REAL)
def test_bits_depend_on_neither_backend_nor_threads(name):
    patterns = set()
    for backend, threads in (("reference", 1), ("native", 1), ("native", 2)):
        problem = Problem((7, 9, 10), (4, 3, 5), "poisson27", backend=backend, threads=threads)
        r, z = problem.vector(), problem.matrix.operand()
        before = r.tobytes()
        problem.make(name).apply(r, z)
        assert r.tobytes() == before
        patterns.add(z.tobytes())
    assert len(patterns) == 1


@pytest.mark.parametrize("name", REAL)
def test_float32_gives_what_float64_gives_rounded_on_the_way(name):
    results = []
    for dtype in ("float64", "float32"):
        problem = Problem((8, 8, 8), (4, 4, 4), dtype=dtype)
        r, z = problem.matrix.operand(), problem.matrix.operand()
        r[:] = np.random.default_rng(0).integers(-9, 10, len(r))
        problem.make(name).apply(r, z)
        assert z.dtype == dtype
        results.append(z)
    far = np.linalg.norm(results[0] - results[1]) / np.linalg.norm(results[0])
    assert 0.0 < far < 1e-6


@pytest.mark.parametrize("name", REAL)
def test_any_number_of_vectors_may_come_and_come_again(name):
    problem = Problem((5, 5, 5), (3, 3, 3))
    precondition = problem.make(name)
    pairs = [(problem.vector(k), problem.matrix.operand()) for k in range(MOST + 3)]
    first = []
    for r, z in pairs:
        precondition.apply(r, z)
        first.append(z.tobytes())
        z[:] = np.nan
    assert len(set(first)) == len(first)
    for (r, z), expected in zip(pairs, first, strict=True):
        precondition.apply(r, z)
        assert z.tobytes() == expected


def test_plans_are_made_once_for_a_pair_of_vectors():
    pairs = []
    plans = Plans(lambda r, z: pairs.append((r, z)))
    vectors = [np.zeros(3) for _ in range(3)]
    for _ in range(3):
        plans(vectors[0], vectors[1])
        plans(vectors[1], vectors[2])
    assert len(pairs) == 2


@pytest.mark.parametrize("shape", [(1, 1, 1), (4, 4, 4), (2, 1, 3)])
def test_multigrid_on_a_box_too_small_to_coarsen_is_the_inverse(shape):
    problem = Problem(shape, (2, 2, 2), "poisson27")
    operator = columns(problem.make("multigrid").apply, problem.matrix)
    assert np.abs(operator @ problem.dense() - np.eye(problem.box.n)).max() < 1e-13


def test_axes_are_coarsened_along_which_points_are_coupled():
    def shapes(of, *shape):
        return [box.shape for box, _ in hierarchy(Box(*shape, (4, 4, 4)), of)]

    assert shapes(stencil("poisson7"), 17, 16, 15) == [(17, 16, 15), (8, 8, 7), (4, 4, 3)]
    assert shapes(stencil("poisson27"), 4, 4, 32) == [(4, 4, 32), (4, 4, 16), (4, 4, 8), (4, 4, 4)]
    weak = stencil("anisotropic", eps_z=1.0, eps_y=0.05)
    assert shapes(weak, 16, 16, 16)[:3] == [(16, 16, 16), (8, 16, 8), (4, 16, 4)]
    for box, _ in hierarchy(Box(40, 7, 90, (8, 8, 8)), weak)[-1:]:
        assert max(box.shape) <= COARSEST


def test_the_inverse_is_one_and_symmetric_to_the_bit():
    a = np.random.default_rng(3).standard_normal((40, 40))
    a = a @ a.T + np.eye(40)
    inverse = inverted(a)
    assert np.array_equal(inverse, inverse.T)
    assert np.abs(inverse @ a - np.eye(40)).max() <= 1e-15 * np.linalg.cond(a) * 40


@pytest.mark.parametrize("name", ["jacobi", "chebyshev", "multigrid"])
def test_what_is_counted_grows_with_the_problem_and_the_degree(name):
    small, large = (Problem((n, n, n), (4, 4, 4)).make(name) for n in (8, 16))
    assert 6 < large.flops / small.flops < 10 and 6 < large.nbytes / small.nbytes < 10
    if name != "jacobi":
        assert Problem((8, 8, 8), (4, 4, 4)).make(name, degree=6).flops > 1.4 * small.flops


def test_operations_are_counted_as_they_are_done():
    problem = Problem((8, 8, 8), (4, 4, 4))
    n, products = problem.box.n, problem.matrix.flops
    assert problem.make("jacobi").flops == n
    # degree 3: d = s D b | q = b - w, d = p d + s D q, x = d + d | the same: 2, then 1 + 4 + 1 each
    assert problem.make("chebyshev", degree=3).flops == 2 * products + (2 + 6 + 6) * n


def set_diagonal(problem, row, value):
    csr = problem.matrix.local
    at = np.arange(csr.indptr[row], csr.indptr[row + 1])
    csr.data[at[csr.indices[at] == row]] = value
    entries = csr.indptr, csr.indices.astype(np.int64), csr.data
    problem.matrix = Matrix(MPI.COMM_SELF, problem.matrix.rows, problem.matrix.rows, entries)
    return problem


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("jacobi", 0.0, "row 8 has 0 on the diagonal, but jacobi needs finite elements other than zero"),
        ("jacobi", np.inf, "row 8 has inf on the diagonal"),
        ("chebyshev", np.nan, "row 8 has nan on the diagonal"),
        ("chebyshev", -1.0, "row 8 has -1 on the diagonal, but chebyshev needs positive elements"),
        ("block-jacobi", np.nan, "row 8 has an entry that is NaN or infinite; correct the matrix"),
        ("block-jacobi", 0.0, "row 8 has no usable pivot"),
        ("multigrid", -1.0, "row 8 has -1 on the diagonal, but multigrid needs positive elements"),
    ],
)
def test_a_diagonal_that_cannot_be_divided_by_is_refused_with_its_row(name, value, message):
    problem = set_diagonal(Problem((2, 3, 5), (2, 2, 2)), 8, value)
    with pytest.raises(PreconditionerError, match=message):
        problem.make(name)


def test_elements_that_are_not_finite_are_refused_where_they_would_spread():
    problem = Problem((2, 3, 5), (2, 2, 2))
    problem.matrix.local.data[1] = np.nan
    with pytest.raises(PreconditionerError, match="of a row is nan, but chebyshev needs"):
        problem.make("chebyshev")


def test_multigrid_refuses_convection_and_matrices_of_no_box():
    problem = Problem((8, 8, 8), (4, 4, 4), "convection-diffusion")
    with pytest.raises(PreconditionerError, match="this one has convection; choose jacobi or block-jacobi"):
        problem.make("multigrid")
    with pytest.raises(PreconditionerError, match="needs a problem on a box"):
        make("multigrid", problem.matrix)
    with pytest.raises(
        PreconditionerError, match="a box of 512 points in 64 blocks for a matrix of 512 rows in 8"
    ):
        make("multigrid", problem.matrix, box=Box(8, 8, 8, (2, 2, 2)), stencil=stencil("poisson7"))


def test_wrong_choices_are_refused_with_what_there_is():
    problem = Problem((4, 4, 4), (4, 4, 4))
    with pytest.raises(ChoiceError, match=r"unknown preconditioner 'ilu'.*block-jacobi, chebyshev"):
        problem.make("ilu")
    with pytest.raises(PreconditionerError, match="jacobi has no option 'degree'; it has: none"):
        problem.make("jacobi", degree=2)
    with pytest.raises(PreconditionerError, match="multigrid has no option 'omega'; it has: degree, ratio"):
        make("multigrid", problem.matrix, omega=1)
    with pytest.raises(PreconditionerError, match="degree = 0"):
        problem.make("chebyshev", degree=0)
    with pytest.raises(PreconditionerError, match="ratio = 1"):
        problem.make("chebyshev", ratio=1.0)
    with pytest.raises(PreconditionerError, match="has no GPU kernel; choose jacobi"):
        make("block-jacobi", problem.matrix, backend="cupy")
