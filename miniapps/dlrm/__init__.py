"""DLRM: tables of embeddings cut over all ranks, between two perceptrons that every rank holds.

    mpirun -n 4 python -m miniapps.dlrm --guarantee layout

Rows of bags travel to the samples that ask for them, and gradients back; those of the perceptrons are added over all
ranks as in `miniapps.training`. See docs/dlrm.md.
"""

from miniapps.dlrm.config import DlrmConfig
from miniapps.errors import UsageError
from miniapps.runner.main import App


def run(ctx):
    """One repeat: from the initial weights or a checkpoint to the last step. Returns an Outcome."""
    from miniapps.dlrm.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.dlrm.validate import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.dlrm.validate import memory as need

    return need(config, options, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.dlrm.validate import targets as found

    return found(config, options, size)


def complete(config, options, size: int) -> None:
    """Write back the seeds that follow from that of the run, the sharding that a file says, how the network is called,
    which the guarantee decides where no option does, and how often the state is rounded."""
    from miniapps.checkpoints.options import complete as complete_output
    from miniapps.dlrm.problem import chosen
    from miniapps.learning.course.checks import calls, complete_seeds

    complete_output(config.output)
    if config.embeddings.sharding == "auto":
        config.embeddings.sharding, config.embeddings.choice = chosen(config, size), ""
    elif config.embeddings.choice:
        raise UsageError(
            f"--choice {config.embeddings.choice}: --sharding {config.embeddings.sharding} has no use for it; choose "
            "--sharding auto, or leave it out"
        )
    config.training.calls = calls(config, options)
    complete_seeds(config.seeds, options.seed)


APP = App(
    name="dlrm",
    config=DlrmConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    complete=complete,
    summary="recommendation with tables of embeddings over ranks",
)
