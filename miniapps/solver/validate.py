"""Checks the configuration before a run creates anything."""

import numpy as np

from kernels import registry
from kernels.guarantees import ChoiceError
from miniapps.checkpoints import options as checkpoints
from miniapps.errors import UsageError
from miniapps.layout.rows import Rows
from miniapps.linear import preconditioners
from miniapps.linear.krylov import METHODS
from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.solver import files
from miniapps.solver.checkpoint import OPTION, check_restart
from miniapps.solver.decomposition import weak_grid
from miniapps.solver.problem import (
    GENERAL,
    asks_for_symmetry,
    backend_of,
    box_of,
    box_rows,
    contents_of,
    file_rows,
    stencil_of,
)
from miniapps.system.resources import Need


def complete(config, options, size: int) -> None:
    """Fill in the options that ranks and files decide: the grid of `--points-per-rank`, the hash of the files, and the
    interval of roundings."""
    checkpoints.complete(config.output)
    weak_grid(config.grid, size)
    config.problem.contents = contents_of(config.problem)


def validate(config, options, size: int) -> None:
    """Raises UsageError, BlocksError or ChoiceError, with the option, its allowed values and the remedy."""
    problem, solve, tuning = config.problem, config.solve, config.tuning
    registry.check("spmv", solve.spmv, options.policy.kernel, backend_of(solve.spmv, options.device))
    rows = _rows(config, size).n
    symmetric = bool(problem.matrix) or stencil_of(problem, config.grid).symmetric
    if asks_for_symmetry(config) and not symmetric:
        inner = f" with tuning.inner = {tuning.inner}" if solve.method == "refinement" else ""
        raise UsageError(
            f"--method {solve.method}{inner} needs a symmetric matrix, and --problem {problem.kind} is not symmetric; "
            f"choose {GENERAL}"
        )
    _check_right_side(problem, rows)
    _check_parts(config, options, size)
    _check_tuning(config)
    _check_preconditioner(config, options, symmetric)
    if solve.method == "refinement":
        if tuning.inner == "refinement":
            raise UsageError("tuning.inner = refinement: the inner method must be another one, such as cg")
        if solve.dtype != "float64":
            raise UsageError("--method refinement has residuals in float64: leave out --dtype float32")


def _rows(config, size: int) -> Rows:
    """The rows of the system on rank 0."""
    if config.problem.matrix:
        return file_rows(files.header(config.problem.matrix).rows, config.grid, size, 0, 0)
    return box_rows(box_of(config.grid), size, 0, 0)


def targets(config, options, size: int) -> Targets:
    """The targets of faults: blocks of rows; seeds only if the run draws random numbers."""
    problem, rows = config.problem, _rows(config, size)
    drawn = bool(problem.spread) or problem.right_side == "random"
    digits = {"float64": 64, "float32": 32}[config.solve.dtype]

    def blocks(fault: Fault) -> Struck:
        if fault.kind == "seed":
            return Struck(rows.count if drawn else 0)
        mixed = fault.kind == "kernel-bit" and config.solve.method == "refinement"  # products of two types
        return Struck(rows.count, lambda block: int(np.diff(rows.starts)[block]), None if mixed else digits)

    return Targets(config.solve.last, 0, blocks, exchanges=True)


def _check_parts(config, options, size: int) -> None:
    output, solve = config.output, config.solve
    if solve.last > solve.max_iterations:
        raise UsageError(
            f"--until {solve.until}: this problem ends with iteration {solve.max_iterations} at the latest; choose 0 "
            f"to {solve.max_iterations}, or raise --max-iterations"
        )
    if not (output.checkpoint_every or output.restart):
        return
    option = "--checkpoint-every" if output.checkpoint_every else OPTION
    continued = [name for name, method in METHODS.items() if method.goes_on_from]
    if solve.method not in continued:
        raise UsageError(
            f"{option}: --method {solve.method} cannot continue from a checkpoint; choose one of: "
            f"{', '.join(sorted(continued))}"
        )
    if config.drift.samples:
        raise UsageError(f"{option}: the study of --drift needs whole solves; leave one of the two out")
    if output.restart:
        check_restart(config, options.seed)


def _check_right_side(problem, rows: int) -> None:
    for option, given in (("--matrix", problem.matrix), ("--spread", problem.spread)):
        if problem.right_side == "manufactured" and given:
            raise UsageError(
                f"--right-side manufactured is a function on a box and cannot be combined with {option}; choose ones, "
                "random, unit or file"
            )
    if problem.right_side == "file" and not problem.right_side_file:
        raise UsageError("--right-side file: name the file with --right-side-file")
    if problem.right_side == "file":
        files.check_vector(problem.right_side_file, rows)


def _check_tuning(config) -> None:
    tuning, methods = config.tuning, {config.solve.method}
    if config.solve.method == "refinement":
        methods.add(tuning.inner)
    if "jacobi" in methods and not tuning.omega:
        raise UsageError(
            "tuning.omega = 0: --method jacobi would never leave its start; choose up to 2, such as 2/3"
        )
    if "chebyshev" in methods:
        if tuning.lower == 0.0 or tuning.upper == 0.0:
            raise UsageError(
                "tuning.lower, tuning.upper: bounds of a positive spectrum; choose them above 0, or none"
            )
        if tuning.lower is not None and tuning.upper is not None and tuning.lower >= tuning.upper:
            raise UsageError(
                f"tuning.lower = {tuning.lower:g}: must be below tuning.upper = {tuning.upper:g}; choose less, or none"
            )


def _check_preconditioner(config, options, symmetric: bool) -> None:
    name = config.solve.preconditioner
    if config.tuning.degree is not None and "degree" not in preconditioners.OPTIONS[name]:
        having = ", ".join(n for n, has in preconditioners.OPTIONS.items() if "degree" in has)
        raise UsageError(f"tuning.degree: --preconditioner {name} has no degree; {having} have")
    if name == "multigrid" and config.problem.matrix:
        raise UsageError(
            "--preconditioner multigrid is geometric and needs a box, not --matrix; choose jacobi, block-jacobi "
            "or chebyshev"
        )
    if name == "multigrid" and config.problem.spread:
        raise UsageError(
            "--preconditioner multigrid knows the operator, not the units of --spread; choose jacobi, block-jacobi or "
            "chebyshev"
        )
    if name in ("multigrid", "chebyshev") and not symmetric:
        raise UsageError(
            f"--preconditioner {name} needs a symmetric matrix, and --problem {config.problem.kind} is not symmetric; "
            "choose jacobi or block-jacobi"
        )
    if name == "block-jacobi" and options.device == "cuda":
        raise ChoiceError(
            "--preconditioner block-jacobi cannot run with --device cuda: its triangular solves are serial; choose "
            "jacobi, chebyshev or multigrid"
        )


def follows(config, options) -> str | None:
    """What follows the processor: a product of another library."""
    if config.solve.spmv == "scipy":
        return (
            "--spmv scipy computes products by SciPy, compiled for each processor; choose --spmv csr or merge"
        )
    return None


# Measured peak bytes: of an entry during the setup of a matrix on a box, or of one from a file with or without the
# check of symmetry; of an entry during the solve; of a block in the lists of every rank.
GENERATED, READ, READ_ALONE, KEPT, LISTED = 48, 210, 85, 12, 40
VECTORS = 12  # of a method and its system, at least


def memory(config, options, size: int) -> Need:
    """The memory of a rank with the most rows, at the peak of setup and solve."""
    problem, grid, tuning = config.problem, config.grid, config.tuning
    if problem.matrix:
        file = files.header(problem.matrix)
        n, blocks = file.rows, -(-file.rows // grid.rows_per_block)
        entries = file.entries * (1 if file.symmetry == "general" else 2) / n
        setup, what = READ if asks_for_symmetry(config) else READ_ALONE, f"--matrix {problem.matrix}"
    else:
        box = box_of(grid)
        n, blocks, setup = box.n, box.count, GENERATED
        entries = float(np.count_nonzero(stencil_of(problem, grid).coefficients[0, 0, 0]))
        what = f"grid.nx = {grid.nx}, grid.ny = {grid.ny}, grid.nz = {grid.nz}"
    vectors = VECTORS
    if config.solve.method.startswith("gmres"):
        vectors += min(tuning.restart, config.solve.max_iterations)
    if samples := config.drift.samples:
        vectors *= samples + 2
        what += f", --drift {samples}"
    width = 4 if config.solve.dtype == "float32" else 8
    row = max(setup * entries, KEPT * entries + width * vectors)
    fixed = LISTED * blocks

    def fitting(share: int) -> str:
        fits = int(max(0, share - fixed) // row) * size
        edge = f", such as a cube of {round(fits ** (1 / 3))}," if not problem.matrix else ""
        return (
            f"about {fits} rows{edge} fit on {size} rank{'s' * (size > 1)}; choose fewer rows, or more nodes"
        )

    return Need(int(row * -(-n // size)) + fixed, what, fitting)
