"""Whole solves on one rank, without a launcher, where mpi4py can be imported: device and CPU must have the same bits.

The time is that of an iteration in the second repeat, which stops before convergence.
"""

from benchmarks.gpu.stencil import row
from benchmarks.gpu.whole import lacking, on_both, seconds

CASES = [("cg", "jacobi"), ("cg-pipelined", "chebyshev"), ("cg", "multigrid")]  # method, preconditioner
SIDE, EDGE, ITERATIONS = 128, 16, 15  # points along the box and along a block: 2 million rows, 27 points each


def solver_rows(asked) -> list[dict]:
    """A row per method; a single row with the reason if nothing can run."""
    if reason := lacking():
        return [row("solver", f"not run: {reason}")]
    side, edge, iterations = (8, 4, 5) if asked.quick else (SIDE, EDGE, ITERATIONS)
    return [_solve(*case, side, edge, iterations) for case in CASES]


def _solve(method: str, preconditioner: str, side: int, edge: int, iterations: int) -> dict:
    what = f"{method} with {preconditioner}, {side}^3"
    arguments = [f"--n{axis}={side}" for axis in "xyz"] + [f"--set=grid.b{axis}={edge}" for axis in "xyz"]
    arguments += [f"--method={method}", f"--preconditioner={preconditioner}", "--guarantee=layout"]
    arguments += [f"--until={iterations}"]
    try:
        device, cpu = on_both("solver", arguments)
    except RuntimeError as error:
        return row(what, f"FAIL {error}")
    same = set(device["fingerprints"]) == set(cpu["fingerprints"])
    check = "same bits" if same else "FAIL bits differ"
    return row(what, check, seconds(device, "iteration"), seconds(cpu, "iteration"))
