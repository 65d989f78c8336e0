"""Training over a mesh of ranks: models that are written for one device, cut along samples, heads, rows or experts.

    mpirun -n 4 python -m miniapps.mesh --model gpt --recipe dp+tp --mesh data=2,model=2

A step of any model of `miniapps.partition` is planned once, whatever the mesh; under `layout` its bits are too. See
docs/partition.md.
"""

from miniapps.mesh.config import MeshConfig
from miniapps.runner.main import App


def run(ctx):
    """One repeat: from the initial weights or a checkpoint to the last step. Returns an Outcome."""
    from miniapps.mesh.run import run as run_repeat

    return run_repeat(ctx)


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError for what cannot be run, before anything is created."""
    from miniapps.mesh.choice import validate as check

    check(config, options, size)


def memory(config, options, size: int):
    """What a rank will need: a `miniapps.system.resources.Need`."""
    from miniapps.mesh.choice import memory as need

    return need(config, size)


def targets(config, options, size: int):
    """What injected faults can strike: a `miniapps.runner.faults.Targets`."""
    from miniapps.mesh.choice import targets as found

    return found(config)


def complete(config, options, size: int) -> None:
    """Write back the mesh and the axes that follow from the recipe, the seeds that follow from that of the run, and how
    often the state is rounded."""
    from miniapps.checkpoints.options import complete as complete_output
    from miniapps.learning.course.checks import complete_seeds
    from miniapps.mesh.choice import complete as over_mesh

    complete_output(config.output)
    over_mesh(config, size)
    complete_seeds(config.seeds, options.seed)


APP = App(
    name="mesh",
    config=MeshConfig,
    run=run,
    validate=validate,
    memory=memory,
    targets=targets,
    complete=complete,
    summary="training of models cut over a mesh of ranks",
)
