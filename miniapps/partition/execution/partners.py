"""Who takes part in a message of a plan, and what changes hands. No MPI, no torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import cast

from miniapps.partition.cuts.axes import Cut, axes_of, merge, shape
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.cuts.steps import (
    SPAN,
    STAGE,
    Compute,
    Home,
    Plan,
    Reduce,
    Reshard,
    Step,
    step_operands,
)
from miniapps.partition.execution.bound import Added, Moved, Operation
from miniapps.partition.execution.exchange import Recut
from miniapps.partition.execution.place import Place, Wanted
from miniapps.partition.execution.scatter_layout import ScatterLayout
from miniapps.partition.rules.manual import MANUAL, parsed, read_by


def carriers_among(mesh: Mesh, axes: Iterable[str]) -> frozenset[str]:
    """The axes of the grid with several ranks that carry some of the logical `axes`; empty: every rank has all
    blocks."""
    found = map(mesh.carrier, axes)
    return frozenset(carrier for carrier in found if carrier and mesh.extent(carrier) > 1)


def is_first(plan: Plan, mesh: Mesh, rank: int, name: str) -> bool:
    """Whether `rank` is the first rank that holds its part of a value, or its partials of it."""
    value = plan.values[name]
    carriers = {mesh.carrier(axis) for axis in (*axes_of(value.cut), *value.partial)}
    first = dict.fromkeys((axis for axis, _ in mesh.axes), 0)
    if plan.stages and (along := mesh.carrier(STAGE)) is not None:
        owners = mesh.owners(plan.axis(STAGE))
        first[along] = min(int(owners[stage]) for stage in plan.stages[name])
    return all(at == first[axis] for axis, at in mesh.coordinates(rank).items() if axis not in carriers)


def axes_along(plan: Plan, step: Step) -> list[tuple[str, ...]]:
    """The axes over which a step may send: of a reduction, of values that it reshards, of an operand with a halo."""
    if isinstance(step, Reduce):
        return [step.axes, *(axes_of(plan.values[name].cut) for name in step.operands)]
    if isinstance(step, Reshard):
        return [axes_of(plan.values[step.operands[0]].cut)]
    if isinstance(step, Compute) and step.kernel == SPAN:
        return [axes_of(plan.values[step_operands(step)[0]].cut)]
    if isinstance(step, Compute) and step.kernel == MANUAL:
        return [axes_between(plan, step)]
    if isinstance(step, Compute):
        return [axes_of(plan.values[window.operand].cut) for window in step.windows]
    return []


def axes_between(plan: Plan, step: Compute | Operation) -> tuple[str, ...]:
    """The axes that cut the letters along which a manual region sends."""
    along, operands = (
        parsed(str(step.args[1])).along,
        step.operands if isinstance(step, Operation) else step_operands(step),
    )
    found: dict[str, None] = {}
    for letters, name in zip(read_by(step.target, step.args), operands, strict=False):
        for letter, dim in zip(letters, plan.values[name].cut, strict=True):
            found |= dict.fromkeys(axes_of((dim,)) if letter in along else ())
    return tuple(axis.name for axis in plan.axes if axis.name in found)


def is_held(plan: Plan, step: Moved) -> bool:
    """Whether every rank already holds all wanted elements: the new cuts refine those of the operands."""
    return all(
        isinstance(b, tuple) and merge(a, b) == b
        for name, wanted in zip(step.operands, step.wanted, strict=True)
        for a, b in zip(plan.values[name].cut, wanted, strict=True)
    )


def recuts(plan: Plan, names: Sequence[str], wanted: Sequence[Wanted]) -> list[Recut]:
    """The changes of cut of some values."""
    values = plan.values
    return [Recut(values[name].shape, values[name].cut, w) for name, w in zip(names, wanted, strict=True)]


def scattered(
    plan: Plan, step: Added, place: Place, place_of: Callable[[int], Place], group: Sequence[int]
) -> ScatterLayout | None:
    """The layout of a reduce-scatter, if each rank of the `group` needs only its own part of every total; else None."""
    cuts = step.cuts or [plan.values[operand].cut for operand in step.operands]
    parts = [wanted for wanted in step.wanted if wanted is not None]
    if not group or len(parts) != len(cuts):
        return None
    at_home = [any(isinstance(dim, Home) for dim in wanted) for wanted in parts]
    if not all(
        home or place.mesh.scatters(step.rows.axes, a, cast(Cut, b))
        for home, a, b in zip(at_home, cuts, parts, strict=True)
    ):
        return None
    changed = [Recut(shape(cut), cut, part) for cut, part in zip(cuts, parts, strict=True)]
    return ScatterLayout(place_of, place.rank, group, changed)
