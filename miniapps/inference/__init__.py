"""Networks that answer requests of changing size: does an answer depend on what else is in the request?

    mpirun -n 2 python -m miniapps.inference --data blobs --backend static

The same images come again in requests of other sizes, at other places, on other ranks; every answer and every time goes
to the trace. See docs/inference.md.
"""

from miniapps.inference.config import InferenceConfig
from miniapps.runner.main import App


def run(ctx):
    """One repeat: every request once. Returns an Outcome."""
    from miniapps.inference.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.inference.validate import validate as check

    check(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.inference.validate import targets as found

    return found(config, options, size)


def complete(config, options, size: int) -> None:
    """Write back the backend that the guarantee decides, and the seeds that follow from that of the run."""
    from miniapps.inference.validate import backend

    config.inference.backend = backend(config, options)
    for name in ("init", "data", "requests"):
        if getattr(config.seeds, name) is None:
            setattr(config.seeds, name, options.seed)


APP = App(
    name="inference",
    config=InferenceConfig,
    run=run,
    validate=validate,
    targets=targets,
    complete=complete,
    summary="networks that answer requests of changing size, by torch, ONNX Runtime, OpenVINO or static schedules",
)
