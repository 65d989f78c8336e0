"""What a training over a mesh can be: refusals, what follows where no option says it, and what it costs."""

from __future__ import annotations

from typing import Any

from kernels.guarantees import ChoiceError, known
from miniapps.checkpoints import options as checkpoints
from miniapps.errors import UsageError
from miniapps.learning.course import checks
from miniapps.learning.course.options import AUTO
from miniapps.learning.discovery import require_heard
from miniapps.learning.samples.images import USUAL
from miniapps.mesh.checkpoint import HOLDING
from miniapps.mesh.problem import counts, deck, load, mesh_of, names
from miniapps.partition import models
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import pairs, require_blocks, require_fits
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.planning.recipes import chosen, plan_of
from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.system.resources import Need

TORCH, KEPT = 2**28, 8  # bytes of torch with its export; copies of a value that a step holds


def complete(config: Any, options: Any, size: int) -> None:
    """Write back the data, the recipe that fits the mesh, the mesh and the axes that follow from the recipe, axes in
    the order of the model, the seeds that follow from that of the run, and how often the state is rounded. Raises
    ChoiceError for a recipe or an axis that is unknown, for an axis that is named twice or cannot be cut so; UsageError
    for sizes that do not fit each other."""
    checkpoints.complete(config.output)
    complete_mesh(config, size)
    checks.complete_seeds(config.seeds, options.seed)


def complete_mesh(config: Any, size: int) -> None:
    """Write back the mesh and the axes. Raises as `complete`."""
    model = models.model(config.model.name)
    checks.complete_data(config.data, "text" if model.LEARNS == "text" else USUAL)
    if config.mesh.recipe == AUTO:
        config.mesh.recipe = recipe_of(model, config)
    known(f"recipe of {config.model.name}", config.mesh.recipe, tuple(model.RECIPES))
    carriers = model.RECIPES[config.mesh.recipe]
    config.mesh.axes = config.mesh.axes or ",".join(carriers)
    HOLDING.require(config)
    axes = chosen(model, deck(config), names(config))
    # In whatever order they were given: one experiment.
    config.mesh.axes = ",".join(axis.name for axis in axes)
    if not config.mesh.mesh:
        first, *others = dict.fromkeys(carriers.values())
        config.mesh.mesh = ",".join([f"{first}={size}", *(f"{name}=1" for name in others)])


def recipe_of(model: models.MeshModel, config: Any) -> str:
    """The first recipe of a model whose axes are those of --mesh. UsageError where no recipe has them."""
    recipes = {name: set(carriers.values()) for name, carriers in model.RECIPES.items()}
    given = set(pairs(config.mesh.mesh, "--mesh", "data=2,model=2")) if config.mesh.mesh else {"data"}
    fitting = [name for name, axes in recipes.items() if axes == given or config.mesh.map]
    if not fitting:
        said = "; ".join(f"{name}: {','.join(sorted(axes))}" for name, axes in recipes.items())
        raise UsageError(
            f"--mesh {config.mesh.mesh}: no recipe of {config.model.name} has these axes; choose those of a recipe "
            f"({said}), or say by --map what yours carry"
        )
    return fitting[0]


def validate(config: Any, options: Any, size: int) -> None:
    """Raise UsageError or ChoiceError, naming the option, for what can be refused before a run. It takes
    a plan only where a map has one axis of the mesh carry several of the problem."""
    require_heard(config.model, models.every())
    checks.validate(config, options, "mesh")
    if options.replay is not None:
        raise UsageError(
            "--replay: over a mesh nothing is decided from a clock or an order of arrival; leave it out"
        )
    checks.require_samples(config, counts(config)[0])
    try:
        mesh = mesh_of(config, options, size)
        require_blocks(models.model(config.model.name).axes(deck(config)), mesh)
        if config.mesh.map and len(dict(mesh.carriers)) > len({carrier for _, carrier in mesh.carriers}):
            require_fits(_plan(config), mesh)
    except AxisError as error:
        raise ChoiceError(f"--blocks: {error}") from error
    load(config)
    HOLDING.check(config, options, size)


def _plan(config: Any) -> Plan:
    """The plan of the problem. It takes an export, seconds of torch; recipes are known to fit without."""
    import torch

    from miniapps.partition.capture.export import export

    model, sizes = models.model(config.model.name), deck(config)
    with torch.random.fork_rng(devices=[]):
        graph = export(model.module(sizes), model.inputs(sizes))
    return plan_of(model, sizes, graph, names(config), config.mesh.fuse)


def memory(config: Any, options: Any, size: int) -> Need:
    """What a rank will need: whole parameters while they are drawn, and activations of all samples at worst."""
    parameters, activations = models.model(config.model.name).costs(deck(config))
    return Need(
        TORCH + 4 * (8 * parameters + KEPT * activations // max(1, size)),
        f"--model {config.model.name}, training.batch = {config.training.batch}",
        lambda share: "choose a smaller model, a smaller batch, or more nodes",
    )


def targets(config: Any, options: Any, size: int) -> Targets:
    """Parameters, of which a rank has parts. Results of a node are cut as the plan says, which is not made yet."""
    import torch

    with torch.device("meta"):  # nothing is allocated or drawn
        whole = models.model(config.model.name).module(deck(config))
    sizes = [parameter.numel() for parameter in whole.parameters()]

    def blocks(fault: Fault) -> Struck | None:
        return None if fault.kind == "kernel-bit" else checks.tensors_struck(fault, sizes)

    return Targets(config.training.last, blocks=blocks)
