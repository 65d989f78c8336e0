"""Checks the configuration before a run creates anything, fills in defaults, and estimates memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError, known
from miniapps.checkpoints import options as checkpoints
from miniapps.errors import UsageError
from miniapps.learning.course import checks
from miniapps.learning.course.options import ADAPREC, AUTO
from miniapps.learning.discovery import require_heard
from miniapps.learning.policies import choosing
from miniapps.learning.samples.images import USUAL, held_out
from miniapps.mesh.checkpoint import HOLDING
from miniapps.mesh.problem import counts, deck, load, mesh_of, names, ordering_of, planned
from miniapps.partition import models
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import pairs, require_blocks, require_fits
from miniapps.partition.cuts.steps import STAGE, Compute
from miniapps.partition.execution.orderings import require_ordering
from miniapps.partition.execution.wires import require_wire
from miniapps.partition.planning.recipes import chosen
from miniapps.runner.faults import Fault, Struck, Targets
from miniapps.system.resources import Need
from miniapps.untrusted.program import Program

TORCH, KEPT = 2**28, 8  # bytes of torch with its export; copies of a value during a step


def complete(config: Any, options: Any, size: int) -> None:
    """Fill in the data, the mesh of --mesh auto, the recipe that suits the mesh, the mesh and the axes that follow from
    the recipe (axes in the order of the model), the seeds that follow from the run's seed, and how often the state is
    rounded. Raises ChoiceError if a recipe or an axis is unknown, or if an axis is named twice or cannot be cut like
    this; UsageError if sizes contradict each other, or if --mesh auto has no prices."""
    checkpoints.complete(config.output)
    if config.mesh.mesh == AUTO:
        from miniapps.mesh.auto import choose

        complete_data(config)
        choose(config, options, size)
    complete_mesh(config, size)
    checks.complete_seeds(config.seeds, options.seed)


def complete_mesh(config: Any, size: int) -> None:
    """Fill in the mesh and the axes. Raises like `complete`."""
    model = models.model(config.model.name)
    complete_data(config)
    if config.mesh.recipe == AUTO:
        config.mesh.recipe = recipe_of(model, config)
    known(f"recipe of {config.model.name}", config.mesh.recipe, tuple(model.RECIPES))
    carriers = model.RECIPES[config.mesh.recipe]
    config.mesh.axes = config.mesh.axes or ",".join(carriers)
    HOLDING.require(config)
    axes = chosen(model, deck(config), names(config))
    # Axes in any order are the same experiment.
    config.mesh.axes = ",".join(axis.name for axis in axes)
    if not config.mesh.mesh:
        first, *others = dict.fromkeys(carriers.values())
        config.mesh.mesh = ",".join([f"{first}={size}", *(f"{name}=1" for name in others)])


def complete_data(config: Any) -> None:
    """Fill in the data that suits the model."""
    learns = models.model(config.model.name).LEARNS
    checks.complete_data(config.data, "text" if learns == "text" else USUAL)


def recipe_of(model: models.MeshModel, config: Any) -> str:
    """The first recipe of a model that has the axes of --mesh. Raises UsageError if there is none."""
    recipes = {name: set(carriers.values()) for name, carriers in model.RECIPES.items()}
    given = set(pairs(config.mesh.mesh, "--mesh", "data=2,model=2")) if config.mesh.mesh else {"data"}
    fitting = [name for name, axes in recipes.items() if axes == given or config.mesh.map]
    if not fitting:
        said = "; ".join(f"{name}: {','.join(sorted(axes))}" for name, axes in recipes.items())
        raise UsageError(
            f"--mesh {config.mesh.mesh}: no recipe of {config.model.name} has these axes; choose those of a recipe "
            f"({said}), or state with --map what your axes carry"
        )
    return fitting[0]


def validate(config: Any, options: Any, size: int) -> None:
    """Raise UsageError or ChoiceError, with the option, if the configuration cannot run. Makes a plan only if --map
    lets an axis of the mesh carry several axes of the problem."""
    require_heard(config.model, models.every())
    checks.validate(config, options, "mesh")
    if options.replay is not None and config.training.policy == "fixed" and not config.training.seconds:
        raise UsageError(
            "--replay: this run decides nothing by a clock or an order of arrival; leave it out, or give the --policy "
            "or --seconds of the run to replay"
        )
    if config.training.policy == ADAPREC:
        raise UsageError(
            "--policy adaprec: decides by the accuracy of held-out samples, and models over a mesh have a loss alone; "
            "choose --policy cautious, which decides by losses"
        )
    choosing.validate(config, options, partial(require_wire, level=options.policy.level))
    if config.mesh.save_plan:
        require_known(config)
    count = counts(config)[0]
    held = held_out(config.data.name, count) if config.training.tries else np.zeros(0)
    checks.require_samples(config, count - int(held.sum()))
    if STAGE in names(config) and (
        inside := [spec for spec in options.fault if spec.startswith("kernel-bit")]
    ):
        raise UsageError(
            f"--fault {inside[0]}: ranks of different stages compute different operations, so they cannot count them "
            "together; leave the axis stage out, which changes no bit, or strike a parameter (bitflip)"
        )
    try:
        mesh = mesh_of(config, options, size)
        require_ordering(ordering_of(options), options.policy.level, mesh)
        require_blocks(models.model(config.model.name).axes(deck(config)), mesh)
        if config.mesh.map and len(dict(mesh.carriers)) > len({carrier for _, carrier in mesh.carriers}):
            require_fits(planned(config)[0], mesh)
    except AxisError as error:
        raise ChoiceError(f"--blocks: {error}") from error
    load(config)
    HOLDING.check(config, options, size)


def require_known(config: Any) -> None:
    """Raise UsageError if a policy chooses wires while the run trains, since no price knows them before."""
    if config.training.policy != "fixed":
        raise UsageError(
            f"--policy {config.training.policy}: chooses the wires of gradients while it trains, so no price knows "
            "them before; choose --policy fixed, with --wire"
        )


def follows(config: Any, options: Any) -> str | None:
    """What follows the processor: the first operation or initial weights that only torch computes. Makes a plan."""
    from miniapps.mesh.initial import undrawn
    from miniapps.partition.execution.compute import Kernels

    model = models.model(config.model.name)
    if config.training.policy != "fixed":
        return (
            f"--policy {config.training.policy} decides by a clock, or by linear algebra of NumPy; choose "
            "--policy fixed"
        )
    kept = f"choose another --model than {config.model.name}, such as gpt"
    if of_torch := undrawn(model.module(deck(config))):
        return f"torch draws the initial {of_torch[0]}, by functions compiled for each processor; {kept}"
    kernels = Kernels(options.policy.level, options.threads, anywhere=True)
    plan = planned(config)[0]
    for step in plan.steps:
        if isinstance(step, Compute) and step.kernel != "random":
            floating = plan.values[step.results[0]].dtype.startswith("float")
            if step.kernel == "create" and floating and not step.target.startswith("aten.full."):
                return f"torch computes {step.target} (node {step.node}) for each processor otherwise; {kept}"
            try:
                kernels.function(step.target, step.kernel, dict(step.kwargs))
            except ChoiceError as error:
                return f"{error} (node {step.node}); {kept}"
    return None


def memory(config: Any, options: Any, size: int) -> Need:
    """The memory that a rank needs: whole parameters while they are drawn, and its share of the activations."""
    parameters, activations = models.model(config.model.name).costs(deck(config))
    # Policies that try wires keep states.
    states = 3 * (len(choosing.candidates(config)) + 3) * config.training.tries
    return Need(
        TORCH + 4 * ((8 + states) * parameters + KEPT * activations // max(1, size)),
        f"--model {config.model.name}, training.batch = {config.training.batch}",
        lambda share: "choose a smaller model, a smaller batch, or more nodes",
    )


def targets(config: Any, options: Any, size: int) -> Targets:
    """Parameters, of which each rank has parts. The blocks of a node's results follow from the plan, which does not
    exist yet."""
    import torch

    with torch.device("meta"):  # nothing is allocated or drawn
        whole = models.model(config.model.name).module(deck(config))
    sizes = [parameter.numel() for parameter in whole.parameters()]

    def blocks(fault: Fault) -> Struck | None:
        return None if fault.kind == "kernel-bit" else checks.tensors_struck(fault, sizes)

    # Trials do more steps than the problem has.
    return Targets(None if config.training.tries else config.training.last, blocks=blocks)


def priceable(config: Any, options: Any, size: int) -> tuple[Program, int]:
    """(the program of a step, the number of steps until the run stops). Raises like `require_known` and
    `miniapps.mesh.saved.program`."""
    from miniapps.mesh.saved import program

    require_known(config)
    return program(config, options, size), config.training.last
