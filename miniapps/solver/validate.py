"""What can be refused before a run creates anything."""

from kernels import registry
from kernels.guarantees import ChoiceError
from miniapps import preconditioners
from miniapps.config import UsageError
from miniapps.solver import files
from miniapps.solver.problem import (
    GENERAL,
    asks_for_symmetry,
    backend_of,
    box_of,
    box_rows,
    file_rows,
    stencil_of,
)

# What a product has to promise for the guarantee of a run: `exact` speaks of global sums, and a row is no such.
NEEDED = {"none": "none", "run": "run", "layout": "layout", "exact": "layout"}


def validate(config, options, size: int) -> None:
    """Raises UsageError, BlocksError or ChoiceError naming the option, its allowed values and the remedy."""
    problem, solve, tuning = config.problem, config.solve, config.tuning
    registry.check("spmv", solve.spmv, NEEDED[options.guarantee], backend_of(solve.spmv, options.device))
    symmetric = True
    if problem.matrix:
        file_rows(files.header(problem.matrix).rows, config.grid, size, 0, 0)
    else:
        box_rows(box_of(config.grid), size, 0, 0)
        symmetric = stencil_of(problem, config.grid).symmetric
    if asks_for_symmetry(config) and not symmetric:
        inner = f" with tuning.inner = {tuning.inner}" if solve.method == "refinement" else ""
        raise UsageError(
            f"--method {solve.method}{inner} asks for a symmetric matrix, which --problem {problem.kind} is not; "
            f"choose {GENERAL}"
        )
    _check_right_side(problem)
    _check_preconditioner(config, options, symmetric)
    if solve.method == "refinement":
        if tuning.inner == "refinement":
            raise UsageError("tuning.inner = refinement: the inner method must be another one, such as cg")
        if solve.dtype != "float64":
            raise UsageError("--method refinement has residuals in float64: leave out --dtype float32")


def _check_right_side(problem) -> None:
    for option, given in (("--matrix", problem.matrix), ("--spread", problem.spread)):
        if problem.right_side == "manufactured" and given:
            raise UsageError(
                f"--right-side manufactured is a function on a box, which {option} is not for; choose ones, random, "
                "unit or file"
            )
    if problem.right_side == "file" and not problem.right_side_file:
        raise UsageError("--right-side file: say which, by --right-side-file")


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
            f"--preconditioner {name} asks for a symmetric matrix, and --problem {config.problem.kind} is not; choose "
            "jacobi or block-jacobi"
        )
    if name == "block-jacobi" and options.device == "cuda":
        raise ChoiceError(
            "--preconditioner block-jacobi cannot run with --device cuda: its triangular solves are serial; choose "
            "jacobi, chebyshev or multigrid"
        )
