"""All recipes and meshes of a problem for a number of ranks, as programs to be priced."""

from __future__ import annotations

import argparse

from kernels.guarantees import known
from miniapps.errors import UsageError
from miniapps.partition.asking import problem_of
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.mesh import pairs
from miniapps.partition.graphs.flops import model_flops
from miniapps.partition.own.problem import OwnProblem
from miniapps.partition.planning import recipes
from miniapps.partition.pricing.candidates import candidates, planned
from miniapps.partition.pricing.program import program_of
from miniapps.untrusted.program import Program

RANKS_MOST = 2**20


def search(options: argparse.Namespace) -> tuple[list[Program], list[tuple[str, str]]]:
    """(a program for each recipe and mesh of `options.ranks` ranks, the candidates with too few blocks and why).
    Raises UsageError, ChoiceError, AxisError."""
    if not 1 <= options.ranks <= RANKS_MOST:
        raise UsageError(f"--ranks {options.ranks}: give 1 to {RANKS_MOST:,}")
    if not (options.calibration or options.machine):
        raise UsageError(
            "--calibration DIR is missing: the search compares prices; time kernels and messages by mpirun -n "
            f"{options.ranks} fpna calibrate --out cal --plan '{options.model}', or give a machine file (--machine)"
        )
    given = options.recipe.split(",") if options.recipe else []
    options.recipe = given[0] if given else "dp"
    problem = problem_of(options)
    names = given or list(problem.RECIPES)
    for name in names:
        known("recipe", name, tuple(problem.RECIPES))
    deck = recipes.deck_of(
        problem,
        pairs(options.size, "--size", "width=256")
        | problem.blocked(pairs(options.blocks, "--blocks", "batch=8")),
    )
    found, refused = candidates(problem, deck, names, options.ranks)
    graph = problem.graph if isinstance(problem, OwnProblem) else graph_of(problem, deck)
    flops, level = model_flops(graph), options.guarantee
    return [
        program_of(plan, one.mesh, level, f"{options.model}, {one}", flops)
        for one, plan in planned(problem, deck, graph, found)
    ], refused
