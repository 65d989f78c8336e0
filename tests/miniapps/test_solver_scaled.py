"""Right sides and matrices times powers of two: the same bits but for exponents, verdict and number of iterations."""

import json

import h5py
import numpy as np
import pytest
import scipy.sparse
from mpi4py import MPI

from miniapps.linear.krylov import METHODS, solve
from miniapps.runner.main import main
from miniapps.solver import APP
from miniapps.solver.scale import NEAR, scaled, shift_of
from tests.miniapps.linear_problems import diagonal_inverse
from tests.miniapps.serial_system import SerialSystem

N = 12
MATRIX = 4.0 * np.eye(N) - np.eye(N, k=1) - np.eye(N, k=-1) + np.diag(np.linspace(0.0, 3.0, N))
RIGHT = np.random.default_rng(5).standard_normal(N)
EVERY = range(-1000, 1001)
SAMPLED = sorted({*range(-1000, 1001, 125), -201, -200, -199, 199, 200, 201, 1000})


def solved(method, b):
    x = np.zeros(N)
    end = solve(method, b, x, 1e-10, 200)
    return x, (end.iterations, end.reason, end.converged, end.residual)


def check(name, preconditioned, exponents):
    inverse = diagonal_inverse(MATRIX) if preconditioned else None
    options = {"system32": SerialSystem(MATRIX, inverse, np.float32)} if name == "refinement" else {}
    method = METHODS[name](SerialSystem(MATRIX, inverse, kernels="native"), **options)
    x, end = solved(method, RIGHT)
    assert end[2] and np.linalg.norm(RIGHT - MATRIX @ x) <= 2e-10 * np.linalg.norm(RIGHT)
    for k in exponents:
        found, how = solved(method, np.ldexp(RIGHT, k))
        assert found.tobytes() == np.ldexp(x, k).tobytes() and how == end, k


@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_right_side_times_a_power_of_two(name, preconditioned):
    check(name, preconditioned, SAMPLED)


@pytest.mark.slow
@pytest.mark.parametrize("preconditioned", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_a_right_side_times_every_power_of_two(name, preconditioned):
    check(name, preconditioned, EVERY)


@pytest.mark.parametrize("k", [-1000, -500, -300, 300, 450, 900])
def test_a_constant_right_side_far_from_one(k):
    """Whose square is 0 or infinite."""
    x, end = solved(METHODS["cg"](SerialSystem(MATRIX)), np.full(N, 10.0**-200 if k == -1000 else 2.0**k))
    b = 10.0**-200 if k == -1000 else 2.0**k
    assert end[1] == "converged"
    assert np.abs(1.0 - (MATRIX @ (x / b))).max() < 1e-9


@pytest.mark.parametrize("dtype", NEAR)
def test_what_is_solved_is_the_same_for_every_power_of_two(dtype):
    """So that whatever is computed of it is the same, too."""
    values = np.array([3.5, -1.25e-6, 0.0, 1.0])
    far = [k for k in EVERY if abs(k + 1) > NEAR[dtype]]
    assert len(far) > 1800
    for k in far:
        given = np.ldexp(values, k)
        shift = shift_of(MPI.COMM_SELF, given, dtype)
        assert shift == -k - 1 and scaled(given, shift).tobytes() == np.ldexp(values, -1).tobytes()


@pytest.mark.parametrize(
    ("values", "shift"),
    [
        ([0.0, 0.0], 0),
        ([1.0, 1e-300], 0),
        ([np.inf, 1.0], 0),
        ([2.0**900, 2.0**-1000], -22),  # the least stays a normal number
        ([2.0**1023, 2.0**-1022], -123),  # where that cannot be, the largest comes into range
        ([2.0**-1000, 0.0], 1000),
        ([2.0**-1074], 1074),
    ],
)
def test_scaling_loses_nothing(values, shift):
    assert shift_of(MPI.COMM_SELF, np.array(values), "float64") == shift
    if shift != -123:
        back = np.ldexp(scaled(np.array(values), shift), -shift)
        assert back.tobytes() == np.array(values).tobytes()


def run(folder, a, b, *options):
    """(exit code, solution, iterations, checks) of a run of the solver on 2^a MATRIX x = 2^b RIGHT."""
    folder.mkdir()
    scipy.sparse.save_npz(folder / "a.npz", scipy.sparse.csr_array(np.ldexp(MATRIX, a)))
    np.save(folder / "b.npy", np.ldexp(RIGHT, b))
    code = main(
        APP,
        ["--matrix", str(folder / "a.npz"), "--right-side", "file", "--right-side-file", str(folder / "b.npy"),
         "--save-solution", "--quiet", "--tolerance", "1e-6", "--set", "grid.rows_per_block=4",
         "--out", str(folder / "run"), *options],
        MPI.COMM_SELF,
    )  # fmt: skip
    result = json.loads((folder / "run" / "result.json").read_text())
    with h5py.File(folder / "run" / "solution-repeat-0.h5") as file:
        x = file["x"][...]
    fom = result["fom"]
    return (
        code,
        x,
        fom["iterations"]["value"],
        fom["residual"]["value"],
        [c["passed"] for c in result["checks"]],
    )


OPTIONS = [
    ["--method", "cg", "--preconditioner", "chebyshev", "--guarantee", "exact"],
    ["--method", "bicgstab", "--preconditioner", "block-jacobi", "--guarantee", "layout"],
    ["--method", "gmres-mgs", "--guarantee", "run"],
    ["--method", "refinement", "--preconditioner", "jacobi", "--guarantee", "layout"],
    [
        "--method",
        "cg-pipelined",
        "--set",
        "solve.dtype=float32",
        "--guarantee",
        "layout",
        "--tolerance",
        "1e-4",
    ],
    ["--method", "chebyshev"],
    ["--method", "jacobi", "--guarantee", "layout"],
]
PAIRS = [(0, -1000), (1000, 0), (-1000, -40), (60, 1000)]


@pytest.mark.parametrize("options", OPTIONS[:2])
def test_runs_of_a_scaled_system(tmp_path, options):
    runs_agree(tmp_path, options, PAIRS)


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_runs_of_every_method_on_scaled_systems(tmp_path, options):
    rng = np.random.default_rng(3)
    drawn = [(int(a), int(b)) for a, b in rng.integers(-1000, 1001, (12, 2)) if abs(b - a) < 1000]
    runs_agree(tmp_path, options, [*PAIRS, *drawn])


def runs_agree(tmp_path, options, pairs):
    code, x, *rest = run(tmp_path / "plain", 0, 0, *options)
    assert code == 0
    for number, (a, b) in enumerate(pairs):
        other_code, other, *other_rest = run(tmp_path / str(number), a, b, *options)
        assert (other_code, other_rest[:2]) == (code, rest[:2]), (a, b)
        assert other.astype(np.float64).tobytes() == np.ldexp(x.astype(np.float64), b - a).tobytes(), (a, b)


def test_a_solution_beyond_the_numbers_is_no_pass(tmp_path):
    code, x, *_, passed = run(tmp_path / "far", -900, 900, "--method", "cg")
    assert code == 3 and not passed[-1] and np.isinf(x).any()
