"""BiCGStab, GMRES, Jacobi, Chebyshev and refinement: answers, textbook behaviour, and every way to end."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

from miniapps.linear.krylov import METHODS, Solve, solve
from miniapps.linear.krylov.chebyshev import ABOVE, BELOW, ritz_values
from tests.miniapps.linear_problems import (
    diagonal_inverse,
    ill_conditioned,
    nonsymmetric,
    random,
    real,
    relative_residual,
    well_conditioned,
    with_spectrum,
)
from tests.miniapps.serial_system import SerialSystem, history

GMRES = ("gmres-mgs", "gmres-cgs")
every_gmres = pytest.mark.parametrize("name", GMRES)
either = pytest.mark.parametrize("preconditioned", [False, True])


def tridiagonal(n=40, diagonal=4.0):
    return diagonal * np.eye(n) - np.eye(n, k=1) - np.eye(n, k=-1)


PROBLEMS = {
    "bicgstab": nonsymmetric,
    "gmres-mgs": nonsymmetric,
    "gmres-cgs": nonsymmetric,
    "jacobi": tridiagonal,
    "chebyshev": lambda: with_spectrum(np.linspace(1.0, 20.0, 60)),
    "refinement": well_conditioned,
}
every_method = pytest.mark.parametrize("name", PROBLEMS)


def planned(name, matrix, preconditioned=False, **options):
    inverse = diagonal_inverse(matrix) if preconditioned else None
    if name == "refinement":
        options["system32"] = SerialSystem(matrix, inverse, np.float32)
    return METHODS[name](SerialSystem(matrix, inverse), **options)


def right_side(matrix):
    return random().standard_normal(matrix.shape[0])


# ---- what all have in common


@every_method
@either
def test_it_solves(name, preconditioned):
    matrix = PROBLEMS[name]()
    b, x = right_side(matrix), np.zeros(len(matrix))
    iterations, end = history(planned(name, matrix, preconditioned), b, x, 1e-11, 400)
    assert end.converged and end.reason == "converged" and end.residual <= 1e-11
    assert relative_residual(matrix, b, x) == pytest.approx(end.residual, rel=1e-2)
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-7, atol=1e-11)
    assert [iteration.number for iteration in iterations] == list(range(end.iterations + 1))


@every_method
@either
def test_the_solution_is_that_of_the_iteration(name, preconditioned):
    matrix = PROBLEMS[name]()
    b, x = right_side(matrix), 0.5 * right_side(matrix)[::-1]
    method = planned(name, matrix, preconditioned)
    for iteration in method.iterate(b, x, 1e-9, 30):
        assert relative_residual(matrix, b, method.solution()) == pytest.approx(iteration.residual, rel=1e-4)
        state = method.state()
        assert "v" in state or np.linalg.norm(state["r"]) / np.linalg.norm(b) == pytest.approx(
            iteration.residual, rel=1e-12
        )
    assert method.solution() is method.x and (x == method.x).all()


@every_method
def test_the_right_side_zero_has_the_answer_zero(name):
    x = np.ones(60)
    iterations, end = history(planned(name, well_conditioned()), np.zeros(60), x, 1e-8, 10)
    assert end == Solve(0, 0.0, True, "converged") and not x.any() and len(iterations) == 1


@every_method
def test_the_answer_as_start_needs_no_iteration(name):
    matrix = PROBLEMS[name]()
    answer = right_side(matrix)
    end = solve(planned(name, matrix), matrix @ answer, answer.copy(), 1e-10, 10)
    assert end.iterations == 0 and end.converged


@every_method
def test_nothing_is_left_of_an_earlier_solve(name):
    matrix = PROBLEMS[name]()
    b, bits = right_side(matrix), set()
    method = planned(name, matrix)
    solve(method, b, np.zeros(len(b)), 0.0, 3)
    solve(method, np.full(len(b), np.nan), np.zeros(len(b)), 0.0, 3)
    for _ in range(2):
        x = np.zeros(len(b))
        solve(method, b, x, 0.0, 12)
        bits.add(x.tobytes())
    assert len(bits) == 1


@every_method
def test_a_limit_ends_it(name):
    matrix = PROBLEMS[name]()
    b, x = right_side(matrix), np.zeros(len(matrix))
    end = solve(planned(name, matrix), b, x, 0.0, 2)
    assert (end.iterations, end.converged, end.reason) == (2, False, "limit")
    assert relative_residual(matrix, b, x) == pytest.approx(end.residual, rel=1e-6)
    x = np.full(len(matrix), 2.0)
    assert solve(planned(name, matrix), b, x, 0.0, 0).reason == "limit" and (x == 2.0).all()


@every_method
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["matrix", "b", "x"])
def test_what_is_not_finite_ends_it(name, bad, where):
    matrix = PROBLEMS[name]()
    b, x = right_side(matrix), np.ones(len(matrix))
    if where == "matrix":
        matrix[1, 1] = bad
    else:
        (b if where == "b" else x)[2] = bad
    with np.errstate(invalid="ignore"):
        end = solve(planned(name, matrix), b, x, 1e-8, 10)
    assert (end.iterations, end.converged, end.reason) == (0, False, "not finite")


@pytest.mark.parametrize("name", [*PROBLEMS, "cg", "cg-chronopoulos-gear", "cg-pipelined"])
def test_a_preconditioner_that_gives_nan_ends_it(name):
    matrix = with_spectrum(np.linspace(1.0, 2.0, 20))
    systems = [SerialSystem(matrix, lambda r: np.nan * r, dtype) for dtype in (np.float64, np.float32)]
    options = {"system32": systems[1]} if name == "refinement" else {}
    end = solve(METHODS[name](systems[0], **options), right_side(matrix), np.zeros(20), 1e-8, 1000)
    assert end.reason == ("converged" if name == "jacobi" else "not finite")


@every_method
@either
def test_every_iteration_costs_the_sums_that_the_class_says(name, preconditioned):
    if name in ("gmres-mgs", "refinement"):
        pytest.skip("the number varies with the iteration")
    matrix, sums = PROBLEMS[name](), []
    for limit in (4, 8):
        method = planned(name, matrix, preconditioned)
        solve(method, right_side(matrix), np.zeros(len(matrix)), 0.0, limit)
        sums.append(method.system.calls["sums"])
    assert sums[1] - sums[0] == 4 * METHODS[name].reductions


# ---- BiCGStab


def test_bicgstab_is_scipys():
    matrix = nonsymmetric()
    b, calls = right_side(matrix), []
    scipy.sparse.linalg.bicgstab(matrix, b, rtol=1e-8, callback=lambda x: calls.append(0))
    end = solve(planned("bicgstab", matrix), b, np.zeros(len(b)), 1e-8, 200)
    assert abs(end.iterations - len(calls)) <= 1


def test_bicgstab_ends_with_half_an_iteration_where_that_is_enough():
    b, x = np.array([1.0, 2.0]), np.zeros(2)
    iterations, end = history(planned("bicgstab", 2.0 * np.eye(2)), b, x, 1e-8, 10)
    assert end == Solve(1, 0.0, True, "converged") and x.tolist() == [0.5, 1.0]
    assert "omega" not in iterations[-1].scalars


@pytest.mark.parametrize(
    "matrix, b, detail",
    [
        ([[0.0, 1.0], [-1.0, 0.0]], [1.0, 0.0], "(r0, v) = 0 in iteration 1"),
        ([[1.0, 0.0], [1.0, 0.0]], [1.0, 0.0], "(t, t) = 0 in iteration 1"),
        ([[1.0, -1.0], [1.0, 0.0]], [1.0, 0.0], "omega = 0 in iteration 1"),
        ([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0], [0.0, 1.0, 0.0]], [1.0, 0.0, 0.0], "rho = 0 in iteration 2"),
    ],
)
def test_bicgstab_names_the_scalar_that_is_zero(matrix, b, detail):
    matrix, b, x = np.array(matrix), np.array(b), np.zeros(len(b))
    iterations, end = history(planned("bicgstab", matrix), b, x, 1e-8, 10)
    assert (end.reason, end.detail) == ("breakdown", detail) and end.iterations == len(iterations) - 1
    assert relative_residual(matrix, b, x) == pytest.approx(end.residual, rel=1e-12)


# ---- GMRES


@every_gmres
def test_gmres_ends_in_n_iterations(name):
    n = 12
    matrix = random().standard_normal((n, n))
    b, x = right_side(matrix), np.zeros(n)
    iterations, end = history(planned(name, matrix), b, x, 1e-9, 100)
    assert end.converged and end.iterations == n and iterations[-2].residual > 1e-3


@every_gmres
def test_the_residual_of_gmres_never_grows(name):
    iterations, _ = history(
        planned(name, nonsymmetric(skew=4.0), restart=7), right_side(nonsymmetric()), np.zeros(60), 0.0, 60
    )
    residuals = [iteration.residual for iteration in iterations]
    assert all(later <= earlier * (1.0 + 1e-12) for earlier, later in pairwise(residuals))


@every_gmres
def test_gmres_is_scipys(name):
    matrix = nonsymmetric()
    b, residuals = right_side(matrix), []
    scipy.sparse.linalg.gmres(
        matrix, b, rtol=1e-8, restart=10, callback=residuals.append, callback_type="pr_norm"
    )
    ours, end = history(planned(name, matrix, restart=10), b, np.zeros(len(b)), 1e-8, 200)
    assert abs(end.iterations - len(residuals)) <= 1
    assert [iteration.residual for iteration in ours[1:20]] == pytest.approx(residuals[:19], rel=1e-8)


@every_gmres
def test_a_happy_breakdown_is_the_answer(name):
    x = np.zeros(3)
    method = planned(name, np.diag([2.0, 2.0, 4.0]))
    end = solve(method, np.array([1.0, 0.0, 0.0]), x, 0.0, 10)
    assert end == Solve(1, 0.0, True, "converged") and x.tolist() == [0.5, 0.0, 0.0]
    assert len(method.basis) == 1


@every_gmres
def test_gmres_says_that_a_matrix_is_singular(name):
    x = np.zeros(2)
    end = solve(planned(name, np.diag([1.0, 0.0])), np.array([0.0, 1.0]), x, 1e-8, 10)
    assert (end.reason, end.residual) == ("breakdown", 1.0) and "singular" in end.detail and not x.any()


@every_gmres
def test_gmres_stagnates_where_a_cycle_brings_nothing(name):
    """A cyclic shift: no cycle shorter than n gets anywhere (Saad 2003, section 6.5.6)."""
    shift = np.roll(np.eye(8), 1, axis=0)
    end = solve(planned(name, shift, restart=4), np.eye(8)[0], np.zeros(8), 1e-8, 100)
    assert (end.iterations, end.reason, end.residual) == (4, "stagnation", 1.0)
    assert solve(planned(name, shift, restart=8), np.eye(8)[0], np.zeros(8), 1e-8, 100).converged


@every_gmres
def test_gmres_stagnates_where_rounding_allows_no_more(name):
    matrix = nonsymmetric()
    b, x = right_side(matrix), np.zeros(len(matrix))
    end = solve(planned(name, matrix), b, x, 1e-20, 1000)
    assert end.reason == "stagnation" and relative_residual(matrix, b, x) < 1e-14


def test_classical_gram_schmidt_loses_orthogonality_sooner():
    """The right side is so smooth that 30 iterations reach the rounding of a matrix of condition 1e14."""
    matrix = ill_conditioned(60, 1e14)
    b = matrix @ matrix @ np.ones(60)
    lost = {}
    for name in GMRES:
        method = planned(name, matrix)
        lost[name] = [method.orthogonality() for _ in method.iterate(b, np.zeros(60), 0.0, 30)]
        basis = np.array(method.basis).T
        direct = np.linalg.norm(np.eye(basis.shape[1]) - basis.T @ basis)
        assert lost[name][-1] == pytest.approx(direct, rel=1e-12)
    assert lost["gmres-cgs"][-1] > 1.0 and lost["gmres-mgs"][-1] < 0.1 * lost["gmres-cgs"][-1]
    assert lost["gmres-mgs"][0] < 1e-15


def test_modified_gram_schmidt_costs_one_sum_for_every_basis_vector():
    matrix = nonsymmetric()
    method = planned("gmres-mgs", matrix, restart=10)
    sums = []
    for _ in method.iterate(right_side(matrix), np.zeros(60), 0.0, 10):
        sums.append(method.system.calls["sums"])
    assert np.diff(sums).tolist() == list(range(2, 12))
    assert np.mean(np.diff(sums)) == method.reductions
    with pytest.raises(ValueError, match="restart 0"):
        planned("gmres-mgs", matrix, restart=0)


# ---- Jacobi


def test_jacobi_converges_as_its_spectrum_says():
    """From a start whose error is an eigenvector of the iteration."""
    matrix = tridiagonal()
    values, vectors = np.linalg.eigh(matrix)
    for k in (0, 20, 39):
        answer = right_side(matrix)
        start = answer + 100.0 * vectors[:, k]
        iterations, _ = history(planned("jacobi", matrix, omega=0.8), matrix @ answer, start, 0.0, 5)
        assert iterations[5].residual / iterations[0].residual == pytest.approx(
            abs(1.0 - 0.2 * values[k]) ** 5, rel=1e-9
        )


def test_jacobi_stagnates_where_x_repeats():
    matrix = tridiagonal()
    b, x = right_side(matrix), np.zeros(40)
    end = solve(planned("jacobi", matrix), b, x, 0.0, 1000)
    assert end.reason == "stagnation" and end.iterations < 200 and relative_residual(matrix, b, x) < 1e-15


def test_jacobi_ends_where_it_diverges_and_where_it_cannot_begin():
    assert (
        solve(planned("jacobi", tridiagonal(diagonal=0.01)), np.ones(40), np.zeros(40), 1e-8, 10**4).reason
        == "not finite"
    )
    singular = np.eye(40)
    singular[3, 3] = 0.0
    end = solve(planned("jacobi", singular), np.ones(40), np.zeros(40), 1e-8, 10)
    assert (end.iterations, end.reason) == (0, "breakdown") and "diagonal" in end.detail
    with pytest.raises(ValueError, match="omega"):
        planned("jacobi", singular, omega=0.0)


# ---- Chebyshev


def test_chebyshev_converges_as_its_bounds_say():
    values = np.linspace(1.0, 9.0, 60)
    matrix = with_spectrum(values)
    iterations, _ = history(
        planned("chebyshev", matrix, lower=1.0, upper=9.0), right_side(matrix), np.zeros(60), 0.0, 25
    )
    sigma = 10.0 / 8.0
    for k in (10, 25):  # |r| <= |r0| / T_k(sigma), Saad 2003, section 12.3
        bound = 1.0 / np.cosh(k * np.arccosh(sigma))
        assert 0.01 * bound < iterations[k].residual < bound * (1.0 + 1e-9)


@either
def test_the_estimated_bounds_enclose_the_spectrum(preconditioned):
    matrix = well_conditioned()
    method = planned("chebyshev", matrix, preconditioned, lanczos_steps=40)
    solve(method, np.ones(60), np.zeros(60), 1e-8, 500)
    scaled = matrix / matrix.diagonal()[:, None] if preconditioned else matrix
    spectrum = np.linalg.eigvals(scaled).real
    assert spectrum.max() < method.upper < 1.2 * spectrum.max() and method.lower < 2.0 * spectrum.min()


def test_ritz_values_of_as_many_steps_as_eigenvalues_are_these():
    values, end = ritz_values(SerialSystem(with_spectrum(np.repeat([1.0, 3.0, 10.0], 20))), 3)
    np.testing.assert_allclose(values, [1.0, 3.0, 10.0], rtol=1e-12)
    assert end.iterations == 3


def test_chebyshev_keeps_its_bounds_and_uses_those_that_are_given():
    matrix = with_spectrum(np.linspace(1.0, 20.0, 60))
    method = planned("chebyshev", matrix, upper=25.0)
    for _ in range(2):
        solve(method, np.ones(60), np.zeros(60), 1e-6, 100)
        lower = method.lower
    assert method.upper == 25.0 and lower == method.lower and BELOW < lower < ABOVE
    for bounds in ({"lower": 2.0, "upper": 1.0}, {"lower": -1.0}, {"upper": np.inf}, {"lanczos_steps": 0}):
        with pytest.raises(ValueError, match=r"chebyshev: .*(lower|lanczos_steps)"):
            planned("chebyshev", matrix, **bounds)


def test_chebyshev_ends_where_its_bounds_are_wrong_or_the_matrix_is():
    matrix = with_spectrum(np.linspace(1.0, 20.0, 60))
    end = solve(planned("chebyshev", matrix, lower=1.0, upper=5.0), np.ones(60), np.zeros(60), 1e-8, 10**4)
    assert end.reason == "not finite"
    end = solve(planned("chebyshev", -matrix), np.ones(60), np.zeros(60), 1e-8, 10)
    assert (end.iterations, end.reason) == (0, "negative curvature") and "in iteration 1" in end.detail


# ---- refinement


@pytest.mark.parametrize("inner", ["cg", "cg-chronopoulos-gear", "bicgstab", "gmres-mgs", "jacobi"])
def test_refinement_reaches_what_float32_cannot(inner):
    matrix = tridiagonal()
    b, x = right_side(matrix), np.zeros(40)
    iterations, end = history(planned("refinement", matrix, inner=inner), b, x, 1e-14, 20)
    assert end.converged and relative_residual(matrix, b, x) < 1e-14
    assert all(iteration.scalars["inner"] > 0 for iteration in iterations[1:])
    alone = np.zeros(40, np.float32)
    solve(METHODS[inner](SerialSystem(matrix, dtype=np.float32)), b.astype(np.float32), alone, 0.0, 200)
    assert relative_residual(matrix, b, alone) > 1e-9


def test_refinement_of_small_numbers_does_not_underflow():
    matrix = tridiagonal()
    b = 1e-60 * right_side(matrix)
    assert solve(planned("refinement", matrix), b, np.zeros(40), 1e-13, 20).converged


def test_refinement_stagnates_and_ends_with_its_inner_method():
    matrix = tridiagonal()
    end = solve(planned("refinement", matrix), right_side(matrix), np.zeros(40), 1e-20, 100)
    assert end.reason == "stagnation" and end.residual < 1e-15
    end = solve(planned("refinement", -matrix), right_side(matrix), np.zeros(40), 1e-8, 100)
    assert (end.iterations, end.reason) == (0, "negative curvature") and end.detail.startswith(
        "cg in outer iteration 1"
    )


@pytest.mark.parametrize(
    "options, message",
    [({"inner": "lu"}, "there are: .*bicgstab"), ({"inner_tolerance": 1.0}, "inner_tolerance 1.0")],
)
def test_refinement_refuses_what_it_cannot_do(options, message):
    with pytest.raises(ValueError, match=message):
        planned("refinement", np.eye(3), **options)
    with pytest.raises(ValueError, match="system32"):
        METHODS["refinement"](SerialSystem(np.eye(3)))


# ---- a real matrix


@pytest.mark.parametrize("name", [*GMRES, "bicgstab", "refinement"])
def test_on_a_real_matrix_they_give_the_answer_of_a_direct_solve(name):
    """bcsstk13, scaled and shifted by its diagonal to what short cycles can solve."""
    matrix = real("bcsstk13")
    n = matrix.shape[0]
    scale = scipy.sparse.diags(1.0 / np.sqrt(matrix.diagonal()))
    matrix = (scale @ matrix @ scale + scipy.sparse.identity(n)).tocsr()
    b = right_side(matrix)
    system = SerialSystem(matrix, kernels="native")
    options = (
        {"system32": SerialSystem(matrix, dtype=np.float32, kernels="native")} if name == "refinement" else {}
    )
    x = np.zeros(n)
    end = solve(METHODS[name](system, **options), b, x, 1e-12, 500)
    direct = scipy.sparse.linalg.spsolve(matrix.tocsc(), b)
    assert end.converged and np.linalg.norm(x - direct) < 1e-11 * np.linalg.norm(direct)
