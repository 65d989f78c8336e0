"""Rates of this machine for predictions: kernels by shape, all-reduces, exchanges, overheads, memory, and its noise.

    mpirun -n 2 python -m miniapps.calibrate --out cal --budget 60

An ordinary application with an ordinary trace: regions are micro-benchmarks, values their parameters. `python -m
analysis predict RUN --calibration cal` reads it. See docs/predict.md.
"""

from miniapps.calibrate.config import CalibrateConfig
from miniapps.runner.main import App


def run(ctx):
    """One calibration. Returns an Outcome."""
    from miniapps.calibrate.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be measured, before anything is created."""
    from miniapps.calibrate.validate import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.calibrate.validate import memory as need

    return need(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.calibrate.validate import targets as found

    return found(config, options, size)


APP = App(
    name="calibrate",
    config=CalibrateConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    summary="rates of this machine for predictions: kernels by shape, all-reduces, exchanges, overheads, memory, noise",
)
