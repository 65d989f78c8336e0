"""Distributed Krylov solvers whose dot products are added in any order: the solver mini-app.

    mpirun -n 4 python -m miniapps.solver --deck S --guarantee layout

An iterative method feeds every rounding difference back into itself. The app solves one linear system, and records
bits and residual after every iteration. It shows how far drawn orders of addition drive the iterates apart, and whether
they change the number of iterations. See docs/explanation/solver.md.
"""

from miniapps.runner.main import App
from miniapps.solver.config import SolverConfig

APP = App(
    name="solver",
    config=SolverConfig,
    serves=("device", "processor"),
    summary="distributed Krylov solvers: the effect of the order of addition on an iteration",
)
