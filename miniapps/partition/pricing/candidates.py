"""All ways to use a number of ranks for a model: recipes and meshes, and on request blocks, micro-batches, schedules of
pipelines, guarantees, wires of gradients, how attention reaches cut keys, which tokens a rank of a ring owns, which
messages begin early, and orderings of other sums."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from kernels.allreduce import Reduction, catalog
from kernels.allreduce.reduction import IN
from kernels.guarantees import LEVELS, ChoiceError, meets
from kernels.wires import LOSSY, PLAIN
from miniapps.errors import UsageError
from miniapps.partition.cuts.axes import Axis, AxisError
from miniapps.partition.cuts.mesh import SCHEDULES, ZIGZAG, Mesh, parse, require_blocks
from miniapps.partition.cuts.steps import STAGE
from miniapps.partition.execution.orderings import require_ordering, usual
from miniapps.partition.execution.wires import require_wire
from miniapps.partition.models import Problem
from miniapps.partition.planning.early import OFF, OVERLAPS
from miniapps.partition.planning.recipes import chosen, micro_batches, require_attention
from miniapps.partition.planning.smaller.attention import ATTENTION, GATHERED, RING
from miniapps.partition.pricing.space import shares
from miniapps.untrusted.program import mesh_text

DIMENSIONS = (
    "mesh", "blocks", "micro-batches", "schedule", "guarantee", "wire", "attention", "owners", "overlap", "ordering",
)  # fmt: skip
# Words of other searches, with what to search instead.
REFUSED = {
    "ranks": "a search compares meshes of --ranks; start one for each number of ranks",
    "recipe": "every search compares recipes; name them with --recipe",
}
WIRES = tuple("table:n=4" if name == "table" else name for name in LOSSY)
MOST = 10_000  # candidates
TIMES = (1, 2, 4)  # blocks of an axis for each rank along it


@dataclass(frozen=True)
class Candidate:
    """A recipe with a mesh. `blocks`: numbers of blocks by axis, if they are searched; `ordering`: a label, "" for the
    guarantee's own; `given`: the searched choices beside recipe and mesh, in words."""

    recipe: str
    mesh: Mesh
    blocks: tuple[tuple[str, int], ...] = ()
    micro_batches: int = 1
    level: str = "none"
    wire: str = PLAIN
    attention: str = GATHERED
    overlap: str = OFF
    ordering: str = ""
    given: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ", ".join((f"{self.recipe} over {self.mesh}", *self.given))


def require_searchable(names: Sequence[str]) -> None:
    """Raise UsageError for a dimension that cannot be searched."""
    for name in names:
        if name not in DIMENSIONS:
            why = f"{REFUSED[name]}; " if name in REFUSED else ""
            raise UsageError(f"--search {name}: cannot be searched: {why}there are {', '.join(DIMENSIONS)}")


def candidates(
    model: Problem, deck: Any, recipes: Sequence[str], ranks: int, search: Sequence[str] = (),
    level: str = "none", schedule: str = "1f1b", wire: str = PLAIN, attention: str = GATHERED, overlap: str = OFF,
    orderings: Sequence[str] = ("",),
) -> tuple[list[Candidate], list[tuple[str, str]]]:  # fmt: skip
    """(the candidates for `ranks` ranks, (candidate, reason) of those that the sizes do not allow). Each axis of a mesh
    has 2 ranks or more, since a mesh without an axis is one of another recipe; only a mesh of one rank has axes of 1.
    `search`: of DIMENSIONS, the choices that vary beside recipe and mesh; other choices are those of `deck`, `level`,
    `schedule`, `wire`, `attention` and `overlap`; `orderings`: those to compare. Raises UsageError if there is no
    candidate, or if there are more than MOST.
    """
    found, refused = [], []
    for one in _every(
        model, deck, recipes, ranks, search, level, schedule, wire, attention, overlap, orderings
    ):
        try:
            require_blocks(axes_for(model, deck, one), one.mesh)
            require_attention(model, deck_for(model, deck, one), model.RECIPES[one.recipe], one.attention)
        except (UsageError, ChoiceError, AxisError) as error:
            if one.wire in (PLAIN, wire) and one.ordering == orderings[0]:  # the same for all
                refused.append((str(one), str(error)))
            continue
        found.append(one)
        if len(found) > MOST:
            raise UsageError(
                f"--search {','.join(search)}: more than {MOST:,} candidates; search fewer dimensions"
            )
    if not found:
        why = "; ".join(f"{name}: {reason}" for name, reason in refused) or "no recipe has so many axes"
        raise UsageError(
            f"no recipe has a mesh of {ranks} ranks ({why}); choose another number of ranks, or other sizes or blocks"
        )
    return found, refused


def axes_for(model: Problem, deck: Any, one: Candidate) -> tuple[Axis, ...]:
    """The axes of a candidate with their blocks. Raises ChoiceError or AxisError for sizes that the model refuses."""
    return chosen(model, deck_for(model, deck, one), model.RECIPES[one.recipe])


def deck_for(model: Problem, deck: Any, one: Candidate) -> Any:
    """The sizes of a model with the blocks and micro-batches of a candidate. Raises ChoiceError."""
    changed = model.blocked(dict(one.blocks))
    if one.micro_batches != micro_batches(deck):
        changed["micro_batches"] = one.micro_batches
    found = replace(deck, **changed)
    if reason := model.refused(found):
        raise ChoiceError(reason)
    return found


def _every(
    model: Problem, deck: Any, recipes: Sequence[str], ranks: int, search: Sequence[str], level: str, schedule: str,
    wire: str, attention: str, overlap: str, orderings: Sequence[str],
) -> Iterator[Candidate]:  # fmt: skip
    """All candidates, those too that the sizes do not allow."""
    parts = micro_batches(deck)
    divided = "micro-batches" in search and hasattr(deck, "micro_batches")
    if divided and model.exported is not None:
        raise UsageError(
            "--search micro-batches: each number of them is another export of a module of yours; search once for each "
            "--micro-batches"
        )
    micros = _divisors(deck.samples) if divided else [parts]
    levels = [each for each in LEVELS if meets(each, level)] if "guarantee" in search else [level]
    wires = [PLAIN, *WIRES] if "wire" in search else [wire]
    early = OVERLAPS if "overlap" in search else (overlap,)
    for recipe in recipes:
        carriers = model.RECIPES[recipe]
        names = tuple(dict.fromkeys(carriers.values()))
        staged = STAGE in carriers and ranks > 1
        schedules = SCHEDULES if staged and "schedule" in search else (schedule,)
        ways = ATTENTION if "attention" in search and _cuts_keys(model, deck, carriers) else (attention,)
        owners = ("", f"{model.KEYS}={ZIGZAG}") if "owners" in search and model.KEYS in carriers else ("",)
        for sizes in shares(ranks, len(names)):
            if ranks > 1 and 1 in sizes:
                continue
            text = mesh_text(dict(zip(names, sizes, strict=True)))
            for micro, order, of, over, way, own, begins, by in product(
                micros, schedules, levels, wires, ways, owners, early, orderings
            ):
                if own and way != RING:  # equal work in any order
                    continue
                mesh = parse(text, carriers, ranks, schedule=order, owners=own)
                if not _allowed(over, by, of, mesh, len(wires) > 1, len(orderings) > 1):
                    continue
                said = [f"micro-batches={micro}"] * (len(micros) > 1) + [order] * (len(schedules) > 1)
                said += [of] * (len(levels) > 1) + [f"over {over}"] * (over != PLAIN and len(wires) > 1)
                said += [f"attention {way}"] * (len(ways) > 1) + [own] * bool(own)
                said += [f"overlap {begins}"] * (len(early) > 1)
                said += [f"by {by or usual(of)}"] * (len(orderings) > 1)
                one = Candidate(recipe, mesh, (), micro, of, over, way, begins, by)
                for blocks in _blocks(model, deck, one) if "blocks" in search else [()]:
                    told = [f"blocks {','.join(f'{axis}={n}' for axis, n in blocks)}"] * bool(blocks)
                    yield replace(one, blocks=blocks, given=tuple(told + said))


def _blocks(model: Problem, deck: Any, one: Candidate) -> Iterator[tuple[tuple[str, int], ...]]:
    """Numbers of blocks of the axes that a mesh carries: those of the deck, and some for each rank."""
    try:
        axes = axes_for(model, deck, one)
    except (ChoiceError, AxisError):
        axes = chosen(model, deck, model.RECIPES[one.recipe])
    free = [axis for axis in axes if axis.name not in model.WHOLE and one.mesh.carrier(axis.name)]
    choices = []
    for axis in free:
        ranks = one.mesh.extent(one.mesh.carrier(axis.name) or "")
        more = {times * ranks for times in TIMES if times * ranks <= axis.extent}
        choices.append(sorted({axis.blocks} | more) if ranks > 1 else [axis.blocks])
    for counts in product(*choices):
        yield tuple((axis.name, n) for axis, n in zip(free, counts, strict=True))


def _allowed(wire: str, ordering: str, level: str, mesh: Mesh, wires: bool, orderings: bool) -> bool:
    """Whether the guarantee allows a wire, if `wires` are searched, and an ordering that is not its own, if `orderings`
    are."""
    if orderings and ordering == usual(level):  # "" is the same
        return False
    try:
        if wires:
            require_wire(wire, level)
        if orderings:
            require_ordering(ordering, level, mesh)
    except ChoiceError:
        return False
    return True


def _cuts_keys(model: Problem, deck: Any, names: Iterable[str]) -> bool:
    try:
        require_attention(model, deck, names, RING)
    except (ChoiceError, AxisError):
        return False
    return True


def named(level: str) -> list[str]:
    """The labels of all orderings that may add under a guarantee, with their usual parameters."""
    held = f"{IN}exact" if level == "exact" else ""
    found = []
    for each in catalog.orderings():
        label = f"{each.name}{held}"
        try:
            require_ordering(label, level)
            if each.scheduled and not Reduction.named(label, (1,)).needs_links:
                found.append(label)
        except ChoiceError:
            continue
    return found


def _divisors(n: int) -> list[int]:
    return [k for k in range(1, n + 1) if n % k == 0]
