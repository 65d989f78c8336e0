"""All ways to use a number of ranks for a model: its recipes, and the sizes of the axes of the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.partition.cuts.axes import AxisError
from miniapps.partition.cuts.mesh import Mesh, parse, require_blocks, require_fits
from miniapps.partition.cuts.steps import Plan
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.models import Problem
from miniapps.partition.planning.recipes import chosen, plan_of
from miniapps.partition.pricing.space import shares
from miniapps.untrusted.program import mesh_text


@dataclass(frozen=True)
class Candidate:
    """A recipe with a mesh."""

    recipe: str
    mesh: Mesh

    def __str__(self) -> str:
        return f"{self.recipe} over {self.mesh}"


def candidates(
    model: Problem, deck: Any, recipes: Sequence[str], ranks: int
) -> tuple[list[Candidate], list[tuple[str, str]]]:
    """(the candidates for `ranks` ranks, (candidate, reason) of those that have too few blocks). Each axis of a mesh
    has 2 ranks or more, since a mesh without an axis is one of another recipe; only a mesh of one rank has axes of 1.
    Raises UsageError if there is no candidate.
    """
    found, refused = [], []
    for recipe in recipes:
        carriers = model.RECIPES[recipe]
        names = tuple(dict.fromkeys(carriers.values()))
        axes = chosen(model, deck, carriers)
        for sizes in shares(ranks, len(names)):
            if ranks > 1 and 1 in sizes:
                continue
            mesh = parse(mesh_text(dict(zip(names, sizes, strict=True))), carriers, ranks)
            one = Candidate(recipe, mesh)
            try:
                require_blocks(axes, mesh)
            except (UsageError, ChoiceError, AxisError) as error:
                refused.append((str(one), str(error)))
                continue
            found.append(one)
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in refused) or "no recipe has so many axes"
        raise UsageError(
            f"no recipe has a mesh of {ranks} ranks ({why}); choose another number of ranks, or other sizes or blocks"
        )
    return found, refused


def planned(
    model: Problem, deck: Any, graph: Graph, given: Sequence[Candidate]
) -> Iterator[tuple[Candidate, Plan]]:
    """The plan of each candidate whose mesh fits it; candidates of one recipe share theirs."""
    plans: dict[str, Plan] = {}
    for one in given:
        if one.recipe not in plans:
            plans[one.recipe] = plan_of(model, deck, graph, list(model.RECIPES[one.recipe]))
        require_fits(plans[one.recipe], one.mesh)
        yield one, plans[one.recipe]
