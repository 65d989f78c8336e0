"""`python -m miniapps.partition search MODEL --ranks 4`: the fastest recipe and mesh, before any run."""

from __future__ import annotations

import argparse
import os
from typing import Any

from kernels.guarantees import LEVELS, known
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.mesh import pairs
from miniapps.partition.planning import recipes
from miniapps.partition.pricing.candidates import Candidate, candidates, planned
from miniapps.untrusted.program import Program


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of `search`."""
    parser.add_argument("model", metavar="MODEL", help=", ".join(models.names()))
    parser.add_argument("--ranks", type=int, required=True, metavar="P", help="ranks of the meshes")
    parser.add_argument(
        "--calibration", action="append", default=[], metavar="DIR",
        help="a run of fpna calibrate --plan, best on as many ranks; may be repeated",
    )  # fmt: skip
    parser.add_argument("--recipe", metavar="NAME,...", help="recipes to compare (all)")
    parser.add_argument(
        "--size", metavar="NAME=N,...", default="", help="sizes of the model: width=256,layers=4"
    )
    parser.add_argument("--blocks", metavar="AXIS=N,...", default="", help="number of blocks along each axis")
    parser.add_argument("--guarantee", choices=LEVELS, default="none", help="of the run (%(default)s)")
    parser.add_argument(
        "--clock", choices=("cpu", "wall"), default="wall", help="of the seconds (%(default)s)"
    )


def search(options: argparse.Namespace) -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """(the document of the prices, the candidates that are impossible with their reasons). Raises UsageError,
    ChoiceError."""
    known("model", options.model, models.names())
    model = models.model(options.model)
    names = options.recipe.split(",") if options.recipe else list(model.RECIPES)
    for name in names:
        known("recipe", name, tuple(model.RECIPES))
    if not options.calibration:
        raise UsageError(
            "--calibration DIR is missing: the search compares prices; time kernels and messages by mpirun -n "
            f"{options.ranks} fpna calibrate --out cal --plan '{options.model}'"
        )
    if missing := [path for path in options.calibration if not os.path.isdir(path)]:
        raise UsageError(f"--calibration {missing[0]}: no such directory")
    if not 1 <= options.ranks <= 2**20:
        raise UsageError(f"--ranks {options.ranks}: give 1 to {2**20:,}")
    deck = recipes.deck_of(
        model, pairs(options.size, "--size", "width=256") | pairs(options.blocks, "--blocks", "batch=8")
    )
    found, refused = candidates(model, deck, names, options.ranks)
    if not found:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused) or "no recipe has so many axes"
        raise UsageError(
            f"--ranks {options.ranks}: no recipe of {options.model} has a mesh of them: {reasons}"
        )
    from miniapps.partition.showing.price import priced

    return priced(
        programs_of(model, deck, found, options.guarantee), options.calibration, "--clock", options.clock
    ), refused


def programs_of(model: models.MeshModel, deck: Any, given: list[Candidate], level: str) -> list[Program]:
    """The program of each candidate. Exports the model, which takes seconds."""
    from miniapps.partition.capture.shapes import graph_of
    from miniapps.partition.graphs.flops import model_flops
    from miniapps.partition.pricing.program import program_of

    graph = graph_of(model, deck)
    flops = model_flops(graph)
    return [
        program_of(plan, one.mesh, level, str(one), flops) for one, plan in planned(model, deck, graph, given)
    ]
