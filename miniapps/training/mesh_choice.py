"""What a training over a mesh can be: refusals, and what follows where no option says it."""

from __future__ import annotations

from math import prod

from kernels.guarantees import ChoiceError, known
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import Mesh, carriers_of, parse, require_blocks, require_fits
from miniapps.partition.planning.plan import Plan
from miniapps.partition.planning.recipes import chosen, plan_of
from miniapps.system.resources import Need
from miniapps.training.config import IMAGES
from miniapps.training.mesh_problem import TEXT, counts, deck

NEEDED = {
    "output.shares": "even",
    "training.wire": "as is",
    "training.policy": "fixed",
    "model.dropout": 0.0,
    "training.seconds": 0.0,
}
TORCH, KEPT = 2**28, 8  # bytes of torch with its export; copies of a value that a step holds


def complete(config, size: int) -> None:
    """Write back the mesh and the axes that follow from the recipe, axes in the order of the model. Raises ChoiceError
    for a model, a recipe or an axis that is unknown, for an axis that is named twice or cannot be cut so; UsageError
    for heads that do not share the width."""
    known("model over a mesh", config.model.name, models.MODELS)
    recipes = models.model(config.model.name).RECIPES
    known(f"recipe of {config.model.name}", config.mesh.recipe, tuple(recipes))
    carriers = recipes[config.mesh.recipe]
    config.mesh.axes = config.mesh.axes or ",".join(carriers)
    # Before there is a deck, which says it in its own words.
    if config.model.name in TEXT and config.model.hidden % config.model.heads:
        raise UsageError(
            f"model.hidden = {config.model.hidden} is no multiple of model.heads = {config.model.heads}; choose one"
        )
    try:
        axes = chosen(models.model(config.model.name), deck(config), names(config))
    except AxisError as error:
        raise ChoiceError(f"--blocks: {error}") from error
    # In whatever order they were given: one experiment.
    config.mesh.axes = ",".join(axis.name for axis in axes)
    if not config.mesh.mesh:
        first, *others = dict.fromkeys(carriers.values())
        config.mesh.mesh = ",".join([f"{first}={size}", *(f"{name}=1" for name in others)])


def mesh_of(config, options, size: int) -> Mesh:
    """The mesh, with what its axes carry. Raises UsageError, ChoiceError."""
    model = models.model(config.model.name)
    axes = chosen(model, deck(config), names(config))
    recipe = model.RECIPES[config.mesh.recipe]
    carriers = carriers_of(config.mesh.map, config.mesh.mesh, axes, recipe)
    return parse(config.mesh.mesh, carriers, size, options.shuffle_blocks)


def names(config) -> list[str]:
    """The axes that cut the problem."""
    return [name.strip() for name in config.mesh.axes.split(",")]


def validate(config, options, size: int) -> None:
    """Raise UsageError or ChoiceError, naming the option, for what can be refused before a run. It takes
    a plan only where a map has one axis of the mesh carry several of the problem."""
    name, data, training = config.model.name, config.data.name, config.training
    if (name in TEXT) != (data == "text") or (name not in TEXT and data not in IMAGES):
        fits = "--data text" if name in TEXT else f"--data {', '.join(IMAGES)}"
        raise UsageError(f"--model {name} cannot learn --data {data}; choose {fits}")
    for key, value in NEEDED.items():
        section, option = key.split(".")
        if getattr(getattr(config, section), option) != value:
            raise UsageError(
                f"{key}: over a mesh only {value!r} is possible; leave it out, or train without --mesh"
            )
    if options.duplicate:
        raise UsageError(
            f"--duplicate {options.duplicate:g}: over a mesh blocks are not computed twice; train without --mesh"
        )
    if options.replay is not None:
        raise UsageError(
            "--replay: over a mesh nothing is decided from a clock or an order of arrival; leave it out"
        )
    count = counts(config)[0]
    if training.batch > count:
        raise UsageError(
            f"training.batch = {training.batch}: {data} has {count} samples; choose a smaller batch"
        )
    try:
        mesh = mesh_of(config, options, size)
        require_blocks(models.model(name).axes(deck(config)), mesh)
        if config.mesh.map and len(dict(mesh.carriers)) > len({carrier for _, carrier in mesh.carriers}):
            require_fits(_plan(config), mesh)
    except AxisError as error:
        raise ChoiceError(f"--blocks: {error}") from error


def _plan(config) -> Plan:
    """The plan of the problem. It takes an export, seconds of torch; recipes are known to fit without."""
    import torch

    from miniapps.partition.capture.export import export

    model, sizes = models.model(config.model.name), deck(config)
    with torch.random.fork_rng(devices=[]):
        graph = export(model.module(sizes), model.inputs(sizes))
    return plan_of(model, sizes, graph, names(config), config.mesh.fuse)


def memory(config, size: int) -> Need:
    """What a rank will need: whole parameters while they are drawn, and activations of all samples at worst."""
    model, sizes = config.model, deck(config)
    width, batch = model.hidden, config.training.batch
    if model.name in TEXT:
        parameters = (12 * width * width + 13 * width) * model.layers + 2 * width * (256 + model.tokens)
        activations = batch * model.tokens * (width * 20 * model.layers + 256)
    elif model.name == "unet":
        parameters, activations = (
            60 * model.channels**2,
            24 * batch * model.channels * sizes.height * sizes.width,
        )
    else:
        parameters = 8 * width * width * max(1, model.experts) + 1024 * width
        activations = 16 * batch * width * max(1, prod((model.experts, 2)))
    return Need(
        TORCH + 4 * (8 * parameters + KEPT * activations // max(1, size)),
        f"model.hidden = {width}, training.batch = {batch}",
        lambda share: "choose a smaller model, a smaller batch, or more nodes",
    )
