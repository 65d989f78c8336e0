"""Sums of arrays by every variant, inside a rank and then across ranks by any ordering: the founding study.

    mpirun -n 4 python -m miniapps.reductions --guarantee layout

The same numbers are added again and again, by deterministic variants and by such whose order is left to chance;
every sum and every time goes to the trace. See docs/reductions.md.
"""

from miniapps.reductions.config import ReductionsConfig
from miniapps.runner.main import App


def run(ctx):
    """One repeat: every array of every size, by every variant, `method.samples` times. Returns an Outcome."""
    from miniapps.reductions.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.reductions.validate import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.reductions.validate import memory as need

    return need(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.reductions.validate import targets as found

    return found(config, options, size)


APP = App(
    name="reductions",
    config=ReductionsConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    summary="sums of arrays by every variant, across ranks by any ordering: their bits and their times",
)
