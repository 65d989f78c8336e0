"""Forced two-dimensional turbulence with a learned subgrid closure: the coupled mini-app.

    mpirun -n 4 python -m miniapps.coupled --deck S --guarantee layout

Every time step solves Poisson equations by conjugate gradients (thousands of small all-reduces), evaluates a
convolutional network on every block, and every few steps trains it (one large all-reduce): the places where
simulation and learning codes lose reproducibility, in one small program. See docs/coupled.md.
"""

from miniapps.coupled.config import CoupledConfig
from miniapps.runner.main import App


def run(ctx):
    """One repeat: from the initial state or a checkpoint to the last step. Returns an Outcome."""
    from miniapps.coupled.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.coupled.validate import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.coupled.validate import memory as need

    return need(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.coupled.validate import targets as found

    return found(config, options, size)


def complete(config, options, size: int) -> None:
    """Write back how the network is called, which the guarantee decides where no option does, and how often the state
    is rounded."""
    from miniapps.checkpoints.options import complete as complete_output
    from miniapps.coupled.closure import closure_batch

    complete_output(config.output)

    config.closure.batch = closure_batch(config, options)


APP = App(
    name="coupled",
    config=CoupledConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    complete=complete,
    duplicates=True,
    summary="forced two-dimensional turbulence with a learned subgrid closure",
)
