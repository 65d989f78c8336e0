"""Three forms of conjugate gradients: the textbook's behaviour, one another's, and every way to end."""

from math import inf, nan

import numpy as np
import pytest
import scipy.sparse.linalg

from miniapps.linear.krylov import METHODS, REASONS, Solve, solve
from tests.miniapps.linear_problems import (
    diagonal_inverse,
    ill_conditioned,
    random,
    real,
    relative_residual,
    well_conditioned,
    with_spectrum,
)
from tests.miniapps.serial_system import SerialSystem, history

FAMILY = ("cg", "cg-chronopoulos-gear", "cg-pipelined")
every_cg = pytest.mark.parametrize("name", FAMILY)


@every_cg
@pytest.mark.parametrize("preconditioned", [False, True])
def test_it_solves(name, preconditioned):
    matrix = well_conditioned()
    system = SerialSystem(matrix, diagonal_inverse(matrix) if preconditioned else None)
    b, x = random().standard_normal(system.n), np.zeros(system.n)
    iterations, end = history(METHODS[name](system), b, x, 1e-11, 500)
    assert end.converged and end.reason == "converged" and end.residual <= 1e-11
    np.testing.assert_allclose(x, np.linalg.solve(matrix, b), rtol=1e-8)
    assert [iteration.number for iteration in iterations] == list(range(end.iterations + 1))
    assert iterations[-1].residual == end.residual


@every_cg
def test_it_needs_as_many_iterations_as_there_are_distinct_eigenvalues(name):
    for distinct in (1, 2, 5):
        matrix = with_spectrum(np.repeat(np.linspace(1.0, 2.0, distinct), 60 // distinct))
        system = SerialSystem(matrix)
        end = solve(METHODS[name](system), random().standard_normal(system.n), np.zeros(system.n), 1e-10, 100)
        assert end.converged and end.iterations == distinct


@every_cg
def test_small_integer_systems_end_exactly(name):
    x = np.zeros(4)
    end = solve(METHODS[name](SerialSystem(2.0 * np.eye(4))), np.array([1.0, 2, 3, 4]), x, 0.0, 10)
    assert end == Solve(1, 0.0, True, "converged")
    assert x.tolist() == [0.5, 1.0, 1.5, 2.0]


def test_the_three_forms_agree_while_rounding_is_small():
    matrix = well_conditioned()
    b = random().standard_normal(len(matrix))
    runs = [
        history(METHODS[name](SerialSystem(matrix, diagonal_inverse(matrix))), b, np.zeros(len(b)), 0.0, 10)[
            0
        ]
        for name in FAMILY
    ]
    for classical, gear, pipelined in zip(*runs, strict=True):
        for other in (gear, pipelined):
            assert other.residual == pytest.approx(classical.residual, rel=1e-10)
            assert other.scalars == pytest.approx(classical.scalars, rel=1e-10)


@every_cg
@pytest.mark.parametrize("preconditioned", [False, True])
def test_every_iteration_costs_what_the_class_says(name, preconditioned):
    matrix = well_conditioned()
    calls = []
    for limit in (10, 20):
        system = SerialSystem(matrix, diagonal_inverse(matrix) if preconditioned else None)
        solve(METHODS[name](system), random().standard_normal(system.n), np.zeros(system.n), 0.0, limit)
        calls.append(system.calls)
    per_iteration = {what: (calls[1][what] - calls[0][what]) / 10 for what in calls[0]}
    assert per_iteration == {
        "apply": 1,
        "precondition": int(preconditioned),
        "sums": METHODS[name].reductions,
    }


@every_cg
def test_it_starts_from_what_x_holds(name):
    matrix = well_conditioned()
    answer = random().standard_normal(len(matrix))
    b, x = matrix @ answer, answer.copy()
    iterations, end = history(METHODS[name](SerialSystem(matrix)), b, x, 1e-12, 100)
    assert end.iterations == 0 and end.converged and len(iterations) == 1 and iterations[0].scalars == {}
    near = solve(METHODS[name](SerialSystem(matrix)), b, answer * (1.0 + 1e-9), 1e-11, 500)
    far = solve(METHODS[name](SerialSystem(matrix)), b, np.zeros(len(b)), 1e-11, 500)
    assert near.converged and near.iterations < far.iterations


@every_cg
def test_nothing_is_left_of_an_earlier_solve(name):
    matrix = ill_conditioned()
    b = random().standard_normal(len(matrix))
    method = METHODS[name](SerialSystem(matrix, diagonal_inverse(matrix)))
    bits = []
    solve(method, np.full(len(b), np.nan), np.zeros(len(b)), 0.0, 3)  # leaves NaN everywhere
    for _ in range(2):
        x = np.zeros(len(b))
        solve(method, b, x, 0.0, 30)
        bits.append(x.tobytes())
    assert bits[0] == bits[1]


@every_cg
def test_the_right_side_zero_has_the_answer_zero(name):
    x = np.ones(4)
    iterations, end = history(METHODS[name](SerialSystem(np.eye(4))), np.zeros(4), x, 1e-8, 10)
    assert end == Solve(0, 0.0, True, "converged") and not x.any() and len(iterations) == 1


@every_cg
@pytest.mark.parametrize("tolerance", [0.0, 1e-30])
def test_a_limit_ends_it(name, tolerance):
    matrix = ill_conditioned()
    x = np.zeros(len(matrix))
    b = random().standard_normal(len(matrix))
    end = solve(METHODS[name](SerialSystem(matrix)), b, x, tolerance, 7)
    assert (end.iterations, end.converged, end.reason) == (7, False, "limit")
    assert relative_residual(matrix, b, x) == pytest.approx(end.residual, rel=1e-6)


@every_cg
def test_a_limit_of_zero_leaves_x_alone(name):
    x = np.full(4, 2.0)
    end = solve(METHODS[name](SerialSystem(np.eye(4))), np.ones(4), x, 1e-8, 0)
    assert end == Solve(0, 1.0, False, "limit") and (x == 2.0).all()


@every_cg
def test_negative_curvature_is_told_with_its_iteration_and_value(name):
    end = solve(METHODS[name](SerialSystem(-np.eye(4))), np.ones(4), np.zeros(4), 1e-8, 10)
    assert (end.iterations, end.reason, end.detail) == (
        0,
        "negative curvature",
        "(p, A p) = -4 in iteration 1",
    )
    indefinite = np.diag([1.0, 2.0, 3.0, 4.0, 5.0, -0.5])
    x = np.zeros(6)
    end = solve(METHODS[name](SerialSystem(indefinite)), np.ones(6), x, 1e-8, 10)
    assert end.reason == "negative curvature" and not end.converged and 0 < end.iterations < 6
    assert end.detail.endswith(f"in iteration {end.iterations + 1}") and "(p, A p) = -" in end.detail
    assert relative_residual(indefinite, np.ones(6), x) == pytest.approx(end.residual, rel=1e-10)


@every_cg
def test_a_direction_without_curvature_is_not_divided_by(name):
    end = solve(METHODS[name](SerialSystem(np.diag([1.0, 0.0]))), np.array([0.0, 1.0]), np.zeros(2), 1e-8, 10)
    assert (end.reason, end.detail) == ("negative curvature", "(p, A p) = 0 in iteration 1")


@every_cg
@pytest.mark.parametrize("factor, reason", [(-1.0, "breakdown"), (0.0, "breakdown"), (np.nan, "not finite")])
def test_a_preconditioner_that_is_not_positive_ends_it(name, factor, reason):
    system = SerialSystem(np.eye(4), lambda r: factor * r)
    end = solve(METHODS[name](system), np.ones(4), np.zeros(4), 1e-8, 10)
    assert (end.iterations, end.reason) == (0, reason) and end.detail.startswith("(r, M r) = ")


@every_cg
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("where", ["matrix", "b", "x"])
def test_what_is_not_finite_ends_it(name, bad, where):
    matrix, b, x = np.eye(4) + 0.5, np.ones(4), np.zeros(4)
    if where == "matrix":
        matrix[1, 2] = bad
        x[2] = 1.0
    else:
        (b if where == "b" else x)[2] = bad
    with np.errstate(invalid="ignore"):
        end = solve(METHODS[name](SerialSystem(matrix)), b, x, 1e-8, 10)
    assert (end.iterations, end.converged, end.reason) == (0, False, "not finite") and "|^2 = " in end.detail


@every_cg
def test_a_step_that_overflows_ends_it(name):
    end = solve(METHODS[name](SerialSystem(np.diag([1e-320, 1.0]))), np.eye(2)[0], np.zeros(2), 1e-8, 10)
    assert (end.iterations, end.reason, end.detail) == (0, "not finite", "alpha = inf in iteration 1")


@every_cg
def test_a_step_that_underflows_ends_it(name):
    system = SerialSystem(np.diag([1e235, 1.0]), lambda r: 1e92 * r)
    with np.errstate(over="ignore", invalid="ignore"):
        end = solve(METHODS[name](system), 1e-60 * np.eye(2)[0], np.zeros(2), 1e-8, 10)
    assert (end.iterations, end.reason, end.detail) == (0, "breakdown", "alpha = 0 in iteration 1")


@every_cg
@pytest.mark.parametrize("tolerance, limit", [(-1.0, 1), (np.nan, 1), (1.0, -1)])
def test_what_cannot_be_asked_for_is_refused(name, tolerance, limit):
    with pytest.raises(ValueError, match="must be at least 0"):
        solve(METHODS[name](SerialSystem(np.eye(2))), np.ones(2), np.zeros(2), tolerance, limit)


@every_cg
def test_the_state_and_the_solution_are_those_of_the_iteration(name):
    matrix = well_conditioned()
    b, x = random().standard_normal(len(matrix)), np.zeros(len(matrix))
    method = METHODS[name](SerialSystem(matrix, diagonal_inverse(matrix)))
    for iteration in method.iterate(b, x, 0.0, 8):
        state = method.state()
        assert set(state) == {"x", "r"} and state["x"] is method.solution()
        assert np.linalg.norm(state["r"]) / np.linalg.norm(b) == pytest.approx(iteration.residual, rel=1e-12)
        assert relative_residual(matrix, b, state["x"]) == pytest.approx(iteration.residual, rel=1e-9)


@every_cg
def test_orthogonality_is_lost_where_the_matrix_is_ill_conditioned(name):
    b = random().standard_normal(60)
    lost = {}
    for kind, matrix in (("well", with_spectrum(np.linspace(1.0, 2.0, 60))), ("ill", ill_conditioned())):
        method = METHODS[name](SerialSystem(matrix, diagonal_inverse(matrix)), watch=True)
        lost[kind] = [method.orthogonality() for _ in method.iterate(b, np.zeros(60), 0.0, 60)]
    assert max(lost["well"][1:4]) < 1e-12 and max(lost["ill"][1:4]) < 1e-12
    assert max(lost["ill"]) > 1e-3
    assert METHODS[name](SerialSystem(matrix)).orthogonality() is None


def test_replacement_gives_the_pipelined_form_the_accuracy_that_it_loses():
    matrix = ill_conditioned(100, 1e4)
    b = random().standard_normal(100)
    reached = {}
    for name, options in (("cg", {}), ("cg-pipelined", {"replace": 0}), ("cg-pipelined", {})):
        x = np.zeros(100)
        solve(METHODS[name](SerialSystem(matrix), **options), b, x, 0.0, 1000)
        reached[name, *options] = relative_residual(matrix, b, x)
    never = reached.pop(("cg-pipelined", "replace"))
    assert all(residual < 1e-2 * never for residual in reached.values())
    with pytest.raises(ValueError, match="0 for never"):
        METHODS["cg-pipelined"](SerialSystem(matrix), replace=-1)


def test_on_a_real_matrix_it_is_scipys():
    """bcsstk16, with the inverse of the diagonal: as many iterations, and the answer of a direct solve."""
    matrix = real("bcsstk16")
    n = matrix.shape[0]
    inverse = diagonal_inverse(matrix)
    b = matrix @ np.ones(n)
    calls = []
    scipy.sparse.linalg.cg(
        matrix,
        b,
        rtol=1e-10,
        maxiter=2000,
        M=scipy.sparse.linalg.LinearOperator((n, n), inverse),
        callback=lambda x: calls.append(0),
    )
    direct = scipy.sparse.linalg.spsolve(matrix.tocsc(), b)
    for name in FAMILY:
        x = np.zeros(n)
        end = solve(METHODS[name](SerialSystem(matrix, inverse, kernels="native")), b, x, 1e-10, 2000)
        assert end.converged and abs(end.iterations - len(calls)) <= 0.02 * len(calls)
        assert np.linalg.norm(x - direct) < 1e-6 * np.linalg.norm(direct)


def test_every_method_says_what_it_is():
    for name, method in METHODS.items():
        assert method.name == name and method.why and method.reductions > 0
    others = {"bicgstab", "gmres-mgs", "gmres-cgs", "jacobi", "chebyshev", "refinement"}
    assert set(METHODS) == {*FAMILY, *others} and len(set(REASONS)) == len(REASONS)


@pytest.mark.parametrize("residual, before, margin", [
    (0.5e-8, nan, 0.5), (2e-8, nan, 0.5), (1e-8, nan, 0.0), (0.0, nan, 1.0), (inf, nan, nan), (nan, nan, nan),
    (0.5e-8, 1.25e-8, 0.2), (0.9e-8, 4e-8, 0.1), (nan, 2e-8, 0.5),
])  # fmt: skip
def test_the_margin_of_a_solve_is_how_near_its_last_residuals_came_to_the_tolerance(residual, before, margin):
    assert Solve(3, residual, False, "limit", before=before).margin(1e-8) == pytest.approx(
        margin, nan_ok=True
    )


def test_a_solve_knows_the_residual_before_its_last_one():
    system = SerialSystem(well_conditioned())
    iterations, end = history(METHODS["cg"](system), np.ones(system.n), np.zeros(system.n), 1e-10, 500)
    assert end.before == iterations[-2].residual > 1e-10 >= end.residual
