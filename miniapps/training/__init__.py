"""Data-parallel training of small networks: gradients of logical micro-batches, summed over all ranks.

    mpirun -n 4 python -m miniapps.training --guarantee layout

Every step adds gradients of all micro-batches of a batch, in buckets that travel while the layers before them are
still computed: the place where distributed learning loses reproducibility. With `--mesh` a step of any model of
`miniapps.partition` is computed over a mesh of ranks instead (mesh_trainer). See docs/training.md.
"""

from miniapps.errors import UsageError
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
    from miniapps.training.targets import targets as found

    return found(config, options, size)


def complete(config, options, size: int) -> None:
    """Write back the seeds that follow from that of the run, the aggregation of inference that follows from that of
    training, how the network is called, which the guarantee decides where no option does, and how often the state is
    rounded."""
    from miniapps.checkpoints.options import complete as complete_output
    from miniapps.training.validate import calls

    complete_output(config.output)
    if config.meshed:
        from miniapps.training.mesh_choice import complete as over_mesh

        over_mesh(config, size)
    if config.model.name == "dlrm" and config.embeddings.sharding == "auto":
        from miniapps.training.dlrm_problem import chosen

        config.embeddings.sharding, config.embeddings.choice = chosen(config, size), ""
    elif config.embeddings.choice and config.model.name == "dlrm":
        raise UsageError(
            f"--choice {config.embeddings.choice}: --sharding {config.embeddings.sharding} has no use for it; choose "
            "--sharding auto, or leave it out"
        )
    config.training.calls = calls(config, options)
    if config.model.aggregate_inference == "same":
        config.model.aggregate_inference = config.model.aggregate
    for name in ("init", "data", "dropout", "neighbours", "order"):
        if getattr(config.seeds, name) is None:
            setattr(config.seeds, name, options.seed)


APP = App(
    name="training",
    config=TrainingConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    complete=complete,
    duplicates=True,
    summary="data-parallel training of small networks",
)
