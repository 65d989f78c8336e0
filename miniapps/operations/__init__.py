"""The audit of PyTorch operations: what the bits of each depend on, beside its input.

    mpirun -n 2 python -m miniapps.operations
    fpna operations mine.py:function

Cases are blocks of work, dealt to the ranks; each is audited in a child process, which may crash or hang. What was
tried, and what came of it, is a certificate. See docs/operations.md.
"""

from miniapps.operations.config import OperationsConfig
from miniapps.runner.main import App


def run(ctx):
    """One repeat: every case once. Returns an Outcome."""
    from miniapps.operations.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.operations.validate import validate as check

    check(config, options)


def targets(config, options, size: int):
    """What injected faults can strike: no block. A `miniapps.runner.faults.Targets`."""
    from miniapps.runner.faults import Targets

    return Targets(None)  # how many cases there are shows as torch is asked


APP = App(
    name="operations",
    config=OperationsConfig,
    run=run,
    validate=validate,
    targets=targets,
    first="--function",
    summary="an audit of PyTorch operations: what their bits depend on beside their input, and what their "
    "documentation says of it; a first argument FILE.py:FUNCTION audits a function of yours",
)
