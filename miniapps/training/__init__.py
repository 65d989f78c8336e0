"""Data-parallel training of small networks: gradients of logical micro-batches, summed over all ranks.

    mpirun -n 4 python -m miniapps.training --guarantee layout

Every step adds gradients of all micro-batches of a batch, in buckets that travel while the layers before them are
still computed: the place where distributed learning loses reproducibility. See docs/training.md.
"""

from miniapps.runner.main import App
from miniapps.training.config import TrainingConfig


def run(ctx):
    """One repeat: from the initial weights or a checkpoint to the last step. Returns an Outcome."""
    from miniapps.training.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.training.validate import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.training.validate import memory as need

    return need(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.training.validate import targets as found

    return found(config, options, size)


def complete(config, options, size: int) -> None:
    """Write back the seeds that follow from that of the run, how the network is called, which the guarantee decides
    where no option does, how often the state is rounded, and what the model adds."""
    from miniapps.checkpoints.options import complete as complete_output
    from miniapps.learning.course.checks import calls, complete_seeds
    from miniapps.training.models import model

    complete_output(config.output)
    config.training.calls = calls(config, options)
    model(config.model.name).complete(config)
    complete_seeds(config.seeds, options.seed)


APP = App(
    name="training",
    config=TrainingConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    complete=complete,
    duplicates=True,
    summary="data-parallel training of small networks, on images and graphs",
)
