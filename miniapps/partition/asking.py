"""The problem, the mesh and the plan that a command line asks for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from kernels.guarantees import known
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.mesh import (
    Mesh,
    carriers_of,
    pairs,
    parse,
    require_blocks,
    require_fits,
    sizes_of,
)
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.own.loading import is_name
from miniapps.partition.own.problem import OwnProblem, own_problem
from miniapps.partition.planning import recipes
from miniapps.partition.pricing.candidates import require_searchable
from miniapps.partition.pricing.space import OF_OWN

if TYPE_CHECKING:
    from miniapps.partition.search import Searched

MANY = 24  # layers
RANKS_MOST = 2**20


@dataclass(frozen=True)
class Asked:
    """The requested problem with its deck, the axes that cut it, and the mesh."""

    problem: models.Problem
    deck: Any
    names: tuple[str, ...]
    mesh: Mesh


@dataclass(frozen=True)
class Planned(Asked):
    """The same with its graph and plan."""

    graph: Graph
    plan: Plan
    title: str

    def notes(self) -> list[str]:
        """Sentences about the recipe of a user's module."""
        return self.problem.notes(self.names) if isinstance(self.problem, OwnProblem) else []


def asked(options: argparse.Namespace, ranks: int | None = None) -> Asked:
    """Checks the options; a model of this package needs no graph for it. `ranks`: of this launch, which the mesh must
    have. Raises UsageError, ChoiceError, AxisError."""
    problem = problem_of(options)
    carriers = problem.RECIPES[options.recipe]
    blocks = pairs(options.blocks, "--blocks", "batch=8,heads=4")
    there = [axis.name for axis in problem.axes(problem.Deck())]
    for name in blocks:
        known("axis of --blocks", name, tuple(there))
    deck = recipes.deck_of(problem, pairs(options.size, "--size", "width=256") | problem.blocked(blocks))
    names = tuple(name.strip() for name in options.axes.split(",")) if options.axes else tuple(carriers)
    axes = recipes.chosen(problem, deck, names)
    first = next(iter(carriers.values()))
    text = f"{first}={ranks or 2}" if options.mesh is None else options.mesh
    size = prod(sizes_of(text).values()) if ranks is None else ranks
    carried = carriers_of(options.map, text, axes, carriers)
    mesh = parse(text, carried, size, schedule=options.schedule, owners=options.owners)
    require_blocks(axes, mesh)
    return Asked(problem, deck, names, mesh)


def problem_of(options: argparse.Namespace) -> models.Problem:
    """The model of this package, or the user's module, with the recipe of the options. Raises UsageError or
    ChoiceError."""
    if is_name(options.model):
        if options.size:
            raise UsageError(f"--size {options.size}: belongs to models of this package; leave it out")
        if not 1 <= options.micro_batches <= 2**20:
            raise UsageError(f"--micro-batches {options.micro_batches}: give a number of 1 or more")
        problem = own_problem(
            options.model, options.inputs, options.loss, options.micro_batches, options.layers
        )
        problem.require(options.recipe)
        return problem
    known("model", options.model, models.names())
    if options.micro_batches != 1:
        raise UsageError(
            f"--micro-batches {options.micro_batches}: belongs to a module of yours; write --size "
            f"micro_batches={options.micro_batches}"
        )
    for name in ("inputs", "loss", "layers"):
        if getattr(options, name) is not None:
            raise UsageError(
                f"--{name}: belongs to a module of yours; {options.model} has its own, so leave it out"
            )
    model = models.model(options.model)
    model.require(options.recipe)
    return model


def planned(options: argparse.Namespace, ranks: int | None = None) -> Planned:
    """The plan for the options; `ranks` as in `asked`. Raises UsageError, ChoiceError, AxisError."""
    found = asked(options, ranks)
    graph = graph_of(found, quick=ranks is None)
    plan = recipes.plan_of(
        found.problem, found.deck, graph, found.names, not options.no_fuse, options.overlap, options.attention
    )
    require_fits(plan, found.mesh)
    title = f"{options.model}, {options.recipe}"
    return Planned(found.problem, found.deck, found.names, found.mesh, graph, plan, title)


def searched(options: argparse.Namespace) -> Searched:
    """The prices of all candidates of the options of `search`. Raises UsageError, ChoiceError, AxisError."""
    from miniapps.partition.search import Asking, search

    if not 1 <= options.ranks <= RANKS_MOST:
        raise UsageError(f"--ranks {options.ranks}: give 1 to {RANKS_MOST:,}")
    if not (options.calibration or options.machine):
        raise UsageError(
            "--calibration DIR is missing: the search compares prices; time kernels and messages by mpirun -n "
            f"{options.ranks} fpna calibrate --out cal --plan '{_in_words(options)}', or give a machine file "
            "(--machine)"
        )
    dimensions = [name.strip() for name in options.search.split(",")]
    require_searchable(dimensions)
    given = options.recipe.split(",") if options.recipe else []
    options.recipe = given[0] if given else "dp"
    problem = problem_of(options)
    names = given or list(problem.RECIPES)
    for name in names:
        known("recipe", name, tuple(problem.RECIPES))
    blocks = problem.blocked(pairs(options.blocks, "--blocks", "batch=8"))
    deck = recipes.deck_of(problem, pairs(options.size, "--size", "width=256") | blocks)
    asking = Asking(options.model, options.calibration, options.machine, options.clock)
    return search(
        problem, deck, names, options.ranks, asking, dimensions, options.guarantee, options.schedule,
        options.attention, options.overlap,
    )  # fmt: skip


def _in_words(options: argparse.Namespace) -> str:
    """The model of the options, as in `calibrate --plan`."""
    pairs = ((key, getattr(options, key, None)) for key in OF_OWN)
    given = (f'{key}="{value}"' for key, value in pairs if value is not None and value != 1)
    return " ".join([options.model, *(given if is_name(options.model) else ())])


def graph_of(found: Asked, quick: bool) -> Graph:
    """The graph of a problem, without memory for numbers. `quick`: one of many equal layers is exported for all, so
    that values have other names than in a run. Raises ExportError."""
    from miniapps.partition.capture import shapes

    of = shapes.graph_of if quick and many_layers(found) else shapes.shapes_of
    return of(found.problem, found.deck)


def many_layers(found: Asked) -> bool:
    """Whether a plain export of the model takes minutes."""
    return getattr(found.deck, "layers", 0) > MANY
