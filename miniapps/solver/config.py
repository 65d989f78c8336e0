"""Options of the solver mini-app."""

from dataclasses import dataclass

from miniapps.checkpoints.options import Checkpoints
from miniapps.linear.stencils import KINDS, SCHEMES
from miniapps.runner.config import HUGE, INT32, option, section

RIGHT_SIDES = ("ones", "random", "manufactured", "unit", "file")
DTYPES = ("float64", "float32")
EDGE = 2**24  # points along an edge of the box, at most
MOST = 1e300  # largest bound of the spectrum
PRECONDITIONERS = ("none", "jacobi", "block-jacobi", "chebyshev", "multigrid")


def _methods() -> list[str]:
    from miniapps.linear.krylov import METHODS

    return sorted(METHODS)


def _products() -> list[str]:
    import kernels.sparse  # noqa: F401 - registers its variants
    from kernels import registry

    return list(dict.fromkeys(v.name for v in registry.variants("spmv")))


@dataclass
class Problem:
    """The system A x = b."""

    kind: str = option(
        "poisson27",
        help="operator on a box: HPCG's 27 points; 7 points; 7 points with small coefficients in y and z; "
        "7 points with convection (not symmetric)",
        choices=KINDS,
        flag="--problem",
    )
    matrix: str = option(
        "",
        help="file with a matrix to solve instead: Matrix Market (.mtx) or SciPy (.npz)",
        role="control",
        flag="--matrix",
        effect="source",
    )
    right_side: str = option(
        "ones",
        help="ones, random: b = A x with a known x of ones or of random numbers in (-1, 1); manufactured: b of a "
        "smooth solution on the box; unit: b of ones; file: from problem.right_side_file",
        choices=RIGHT_SIDES,
        flag="--right-side",
    )
    right_side_file: str = option(
        "",
        help="file of the right-hand side: Matrix Market array or .npy",
        role="control",
        flag="--right-side-file",
        effect="source",
    )
    contents: str = option("", help="hash of the contents of these files, set at the start")
    eps_y: float = option(
        0.1, help="anisotropic: coefficient in y; the one in x is 1", minimum=0.0, maximum=HUGE
    )
    eps_z: float = option(0.01, help="anisotropic: coefficient in z", minimum=0.0, maximum=HUGE)
    velocity: tuple[float, ...] = option(
        (10.0, 20.0, 30.0),
        help="convection-diffusion: velocity in z, y, x",
        unit="diffusivity / longest edge",
        minimum=-HUGE,
        maximum=HUGE,
        count=(3, 3),
    )
    spread: float = option(
        0.0,
        help="bad units: unknown i has the unit 2^k, with k normal of this standard deviation; the matrix becomes "
        "D A D, which is worse conditioned the larger the spread",
        minimum=0.0,
        flag="--spread",
        maximum=50.0,
    )
    scheme: str = option(
        "upwind", help="convection-diffusion: how convection is discretised", choices=SCHEMES
    )


@dataclass
class Grid:
    """The box of grid points and its logical blocks; with problem.matrix only rows_per_block has an effect."""

    nx: int = option(32, help="grid points in x", minimum=1, flag="--nx", maximum=EDGE, effect="size")
    ny: int = option(32, help="grid points in y", minimum=1, flag="--ny", maximum=EDGE, effect="size")
    nz: int = option(32, help="grid points in z", minimum=1, flag="--nz", maximum=EDGE, effect="size")
    bx: int = option(8, help="points of a logical block in x", minimum=1, maximum=EDGE)
    by: int = option(8, help="points of a logical block in y", minimum=1, maximum=EDGE)
    bz: int = option(8, help="points of a logical block in z", minimum=1, maximum=EDGE)
    points_per_rank: int = option(
        0,
        help="weak scaling: edge of the cube of every rank, which sets nx, ny, nz; 0: nx, ny, nz as given",
        role="control",
        flag="--points-per-rank",
        minimum=0,
        maximum=EDGE,
        effect="source",
    )
    rows_per_block: int = option(
        256, help="rows of a logical block of a matrix from a file", unit="rows", minimum=1, maximum=INT32
    )


@dataclass
class Solve:
    """The iterative method, and when it stops."""

    method: str = option("cg", help="the iterative method", choices=_methods, role="method", flag="--method")
    preconditioner: str = option(
        "none", help="the preconditioner", choices=PRECONDITIONERS, role="method", flag="--preconditioner"
    )
    tolerance: float = option(
        1e-8, help="relative residual |r| / |b| to reach", minimum=0.0, flag="--tolerance", maximum=1.0
    )
    max_iterations: int = option(
        1000,
        help="iterations after which the method gives up",
        minimum=0,
        flag="--max-iterations",
        maximum=INT32 - 1,
    )
    until: int | None = option(
        None,
        help="iteration after which this run stops, although the problem continues; none: after the last",
        role="control",
        flag="--until",
        effect="until",
        minimum=0,
        maximum=INT32 - 1,
    )
    dtype: str = option(
        "float64", help="type of matrix and vectors", choices=DTYPES, role="method", flag="--dtype"
    )
    spmv: str = option(
        "csr",
        help="sparse matrix-vector product",
        choices=_products,
        role="method",
        flag="--spmv",
        effect="guarantee",
    )
    reading: str = option(
        "parallel",
        help="how to read a matrix file: parallel, each rank a part; root, rank 0 piece by piece",
        choices=("parallel", "root"),
        role="control",
    )

    @property
    def last(self) -> int:
        """The iteration after which the run stops at the latest."""
        return self.max_iterations if self.until is None else self.until


@dataclass
class Tuning:
    """Parameters of methods and preconditioners."""

    restart: int = option(
        30, help="gmres: vectors per cycle", role="method", minimum=1, flag="--restart", maximum=10_000
    )
    omega: float = option(
        2.0 / 3.0, help="jacobi as a method: damping", role="method", minimum=0.0, maximum=2.0
    )
    replace: int = option(
        50,
        help="cg-pipelined: iterations between residual replacements; 0: none",
        role="method",
        minimum=0,
        maximum=INT32,
    )
    lower: float | None = option(
        None,
        help="chebyshev as a method: lower bound of the spectrum; none: estimated",
        role="method",
        minimum=0.0,
        maximum=MOST,
    )
    upper: float | None = option(
        None,
        help="chebyshev as a method: upper bound of the spectrum; none: estimated",
        role="method",
        minimum=0.0,
        maximum=MOST,
    )
    inner: str = option("cg", help="refinement: method in float32", choices=_methods, role="method")
    inner_tolerance: float = option(
        1e-4, help="refinement: tolerance of the inner method", role="method", minimum=0.0, maximum=1.0
    )
    inner_iterations: int = option(
        200, help="refinement: inner iterations, at most", role="method", minimum=1, maximum=INT32
    )
    degree: int | None = option(
        None,
        help="degree of the polynomial of the chebyshev preconditioner, or of multigrid's smoother; none: the default "
        "of each",
        role="method",
        minimum=1,
        maximum=1000,
    )


@dataclass
class Record:
    """Records of each iteration beside residual and time."""

    every: int = option(
        1,
        help="iterations between fingerprints of the vectors; 0: none",
        role="control",
        minimum=0,
        maximum=INT32,
        records=("fingerprints:*",),
    )
    true_every: int = option(
        0,
        help="iterations between true residuals b - A x; 0: only at the end",
        role="control",
        minimum=0,
        maximum=INT32,
        records=("values:true_residual",),
    )
    error: bool = option(
        True,
        help="record the distance to the known solution in every iteration",
        role="control",
        records=("values:error",),
    )
    orthogonality: bool = option(
        False,
        help="conjugate gradients: record the cosine between the residual and the preconditioned first residual in "
        "every iteration",
        role="control",
        records=("values:orthogonality",),
    )
    solution: bool = option(
        False, help="write the solution to RUN/solution-repeat-0.h5", role="control", flag="--save-solution"
    )


@dataclass
class Drift:
    """The same system solved in lock step with several orders of addition and with exact sums."""

    samples: int = option(
        0,
        help="number of orders of addition to draw; 0: no study",
        role="control",
        minimum=0,
        flag="--drift",
        maximum=10_000,
        records=("values:difference", "values:drift_residual", "values:drift_iterations"),
        of_ranks=True,
    )


@dataclass
class SolverOutput(Checkpoints):
    """Files beside the trace. A run continues by `--continue`, because `--restart` belongs to GMRES."""

    restart: str = option(
        "", help="checkpoint file to continue from", role="control", flag="--continue", effect="restart"
    )


@dataclass
class SolverConfig:
    """All options of `python -m miniapps.solver` beside the common ones."""

    problem: Problem = section(Problem)
    grid: Grid = section(Grid)
    solve: Solve = section(Solve)
    tuning: Tuning = section(Tuning)
    record: Record = section(Record)
    drift: Drift = section(Drift)
    output: SolverOutput = section(SolverOutput)
