"""Distributed Krylov solvers whose dot products are added in any order: the solver mini-app.

    mpirun -n 4 python -m miniapps.solver --deck S --guarantee layout

An iterative method feeds every rounding difference back into itself. The app solves one linear system, records bits
and residual after every iteration, and shows how far injected orders of addition drive the iterates apart and
whether they change the number of iterations. See docs/solver.md.
"""

from miniapps.runner.main import App
from miniapps.solver.config import SolverConfig


def run(ctx):
    """One repeat: the system is set up and solved. Returns an Outcome."""
    from miniapps.solver.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError, ChoiceError or BlocksError for what cannot be run, before anything is created."""
    from miniapps.solver.validate import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.solver.validate import memory as need

    return need(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.solver.validate import targets as found

    return found(config, options, size)


def complete(config, options, size: int) -> None:
    """Write back what ranks and files decide: the grid of `--points-per-rank`, the hash of the files, and how often
    the state is rounded."""
    from miniapps.checkpoints.options import complete as complete_output
    from miniapps.solver.decomposition import weak_grid
    from miniapps.solver.problem import contents_of

    complete_output(config.output)
    weak_grid(config.grid, size)
    config.problem.contents = contents_of(config.problem)


APP = App(
    name="solver",
    config=SolverConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    complete=complete,
    summary="distributed Krylov solvers: what the order of addition does to an iteration",
)
