"""Plans given as text, with ranges from which one can be drawn.

    gpt dp|tp width=64..256 layers=1|2 samples=8..32 data=1..2 model=1..2 guarantee=layout

A model, its recipes, its sizes, and the axes of the mesh; `|` separates choices, `..` is a range of whole numbers, and
`feedforward=4*width` follows another size. `ranks=4` draws the sizes of the mesh, along as many axes of the recipe as
there can be. Without recipes all of the model, without an axis of the mesh one rank along it, without a guarantee none
and layout. `wire=fp8` names lossy wires of gradients, `attention=ring` how attention reaches cut keys, `overlap=sums`
which messages begin early. A module of the user's own has what the options of `explain` say of it:

    mine.py:Model dp|tp inputs="int64[8,16] int64[8,16]" loss=cross_entropy ranks=2
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cache, lru_cache, partial
from math import log, prod
from typing import Any

import numpy as np

from kernels.guarantees import LEVELS, known
from kernels.wires import PLAIN
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.cuts.mesh import Mesh, number, parse, require_blocks, require_fits
from miniapps.partition.cuts.steps import STAGE, Plan
from miniapps.partition.execution.wires import require_wire
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.graphs.repeat import split
from miniapps.partition.own.loading import is_name
from miniapps.partition.own.losses import LOSSES
from miniapps.partition.own.problem import own_problem
from miniapps.partition.planning.early import OFF, OVERLAPS
from miniapps.partition.planning.recipes import (
    chosen,
    deck_of,
    micro_batches,
    parsed,
    plan_of,
    require_attention,
)
from miniapps.partition.planning.smaller.attention import ATTENTION, GATHERED
from miniapps.partition.pricing.turns import Draws, in_turn
from miniapps.untrusted.program import mesh_text

GUARANTEE, RANKS, WIRE, HOW, EARLY = "guarantee", "ranks", "wire", "attention", "overlap"
INPUTS, LOSS, LAYERS, PARTS = OF_OWN = ("inputs", "loss", "layers", "micro_batches")
USUAL = ("none", "layout")  # guarantees
Choices = tuple[Any, ...] | range


@dataclass(frozen=True)
class Drawn:
    """One plan: a recipe of a model with sizes, on a mesh, under a guarantee, with gradients over a wire, with an
    attention and an overlap (`planning.recipes`). `own`: the pairs of OF_OWN, of a module of the user's own."""

    model: str
    recipe: str
    sizes: Mapping[str, int]
    mesh: Mapping[str, int]
    level: str
    wire: str = PLAIN
    own: tuple[tuple[str, str], ...] = ()
    attention: str = GATHERED
    overlap: str = OFF

    @property
    def problem(self) -> models.Problem:
        """The model."""
        return problem_of(self.model, self.own)

    @property
    def deck(self) -> Any:
        """The sizes of the model. Raises UsageError, ChoiceError."""
        return deck_of(self.problem, {name: str(n) for name, n in self.sizes.items()})

    @property
    def ranks(self) -> int:
        """Ranks of the mesh."""
        return prod(self.mesh.values())

    def __str__(self) -> str:
        pairs = (f"{name}={n}" for name, n in (*self.sizes.items(), *self.mesh.items()))
        others = ((WIRE, self.wire, PLAIN), (HOW, self.attention, GATHERED), (EARLY, self.overlap, OFF))
        given = (f"{key}={value}" for key, value, usual in others if value != usual)
        own = (f"{key}={value}" for key, value in self.own)
        return shlex.join([self.model, self.recipe, *own, *pairs, f"{GUARANTEE}={self.level}", *given])


@dataclass(frozen=True)
class Space:
    """Plans of one model: its `recipes`, and the choices of sizes, axes of the mesh, guarantees, wires, attentions and
    overlaps. `following`: sizes that are multiples of others, (factor, the other). `ranks`: of the mesh, 0 for those of
    `mesh`. `own`: as of `Drawn`."""

    model: str
    recipes: tuple[str, ...]
    sizes: Mapping[str, Choices]
    mesh: Mapping[str, Choices]
    levels: tuple[str, ...]
    following: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    ranks: int = 0
    wires: tuple[str, ...] = (PLAIN,)
    own: tuple[tuple[str, str], ...] = ()
    attentions: tuple[str, ...] = (GATHERED,)
    overlaps: tuple[str, ...] = (OFF,)

    def draw(self, rng: np.random.Generator) -> Drawn:
        """A plan of the space. Raises as `draws`."""
        return self.draws(rng, 1).found[0]

    def draws(self, rng: np.random.Generator, count: int) -> Draws:
        """Plans whose sizes fit each other; recipes, guarantees, wires, attentions and overlaps take turns, and ranges
        are drawn uniformly in the logarithm. Raises UsageError if none is found."""
        choices = {
            "recipe": self.recipes, GUARANTEE: self.levels, WIRE: self.wires, HOW: self.attentions,
            EARLY: self.overlaps,
        }  # fmt: skip
        return in_turn(self.model, choices, count, rng, partial(self.drawn, rng))

    def drawn(
        self, rng: np.random.Generator, recipe: str, level: str, wire: str, attention: str, overlap: str
    ) -> Drawn:
        """A plan with random sizes. Raises UsageError, ChoiceError or AxisError if they do not fit each other."""
        require_wire(wire, level)
        carriers = problem_of(self.model, self.own).RECIPES[recipe]
        names = sorted(set(carriers.values()))
        sizes = {name: one_of(choices, rng) for name, choices in self.sizes.items()}
        sizes |= {name: times * sizes[of] for name, (times, of) in self.following.items()}
        if self.ranks:
            shapes = widest(shares(self.ranks, len(names)))
            mesh = dict(zip(names, shapes[rng.integers(len(shapes))], strict=True))
        else:
            mesh = {name: one_of(self.mesh[name], rng) if name in self.mesh else 1 for name in names}
        found = Drawn(self.model, recipe, sizes, mesh, level, wire, self.own, attention, overlap)
        require_blocks(chosen(found.problem, found.deck, carriers), _mesh(found, carriers))
        require_attention(found.problem, found.deck, carriers, attention)
        return found


def space_of(text: str) -> Space:
    """The space that a text describes. Exports a module of the user's own. Raises UsageError, ChoiceError."""
    name, *words = words_of(text)
    own = tuple((key, value) for key, _, value in (word.partition("=") for word in words) if key in OF_OWN)
    if is_name(name):
        words = [word for word in words if word.partition("=")[0] not in OF_OWN]
    else:
        known("model of --plan", name, models.names())
        own = ()
    model = problem_of(name, own)
    there = {each.name for each in fields(model.Deck)}
    axes = {axis for recipe in model.RECIPES.values() for axis in recipe.values()}
    recipes: tuple[str, ...] = ()
    sizes: dict[str, Choices] = {}
    mesh: dict[str, Choices] = {}
    levels: tuple[str, ...] = USUAL
    wires: tuple[str, ...] = (PLAIN,)
    named: dict[str, tuple[str, ...]] = {HOW: (GATHERED,), EARLY: (OFF,)}
    following: dict[str, tuple[int, str]] = {}
    ranks = 0
    for word in words:
        key, sign, value = word.partition("=")
        if not sign:
            recipes = tuple(word.split("|"))
            for recipe in recipes:
                model.require(recipe)
        elif key == GUARANTEE:
            levels = tuple(value.split("|"))
            for level in levels:
                known("guarantee in --plan", level, LEVELS)
        elif key == WIRE:
            wires = tuple(value.split("|"))
            for wire in wires:
                require_wire(wire, "layout")
        elif key in named:
            named[key] = tuple(value.split("|"))
            for one in named[key]:
                known(f"{key} in --plan", one, ATTENTION if key == HOW else OVERLAPS)
        elif key == RANKS:
            ranks = number(value, f"--plan {name}: {RANKS}")
        elif key in axes:
            mesh[key] = choices_of(value, f"--plan {name}: {key}")
        else:
            known(f"size of {name} in --plan", key, tuple(sorted(there | axes)))
            times, sign, of = value.partition("*")
            kind = type(getattr(model.Deck(), key, 0))
            if kind is not int:  # such as dropout
                sizes[key] = tuple(parsed(one, f"--plan {name}: {key}", kind) for one in value.split("|"))
            elif sign:
                following[key] = number(times, f"--plan {name}: {key}"), of
            else:
                sizes[key] = choices_of(value, f"--plan {name}: {key}")
    for key, (_, of) in following.items():
        known(f"size of {name} that {key} in --plan follows", of, tuple(sizes))
    usual = (
        recipe for recipe, carriers in model.RECIPES.items() if STAGE not in carriers
    )  # rank 0 of a pipeline has the kernels of its stage alone
    return Space(
        name,
        recipes or tuple(usual),
        sizes,
        mesh,
        levels,
        following,
        ranks,
        wires,
        own,
        named[HOW],
        named[EARLY],
    )


def words_of(text: str) -> list[str]:
    """The words of a text, as a shell divides them. Raises UsageError."""
    try:
        return shlex.split(text) or [""]
    except ValueError as error:
        raise UsageError(f"--plan {text}: {error}; close the quotation marks") from error


@cache
def problem_of(name: str, own: tuple[tuple[str, str], ...]) -> models.Problem:
    """A model of this package, or a module of the user's own with the pairs `own`. Raises UsageError, ChoiceError."""
    if not is_name(name):
        return models.model(name)
    given = dict(own)
    if not given.get(INPUTS):
        raise UsageError(f'--plan {name}: say what its inputs are: {INPUTS}="float32[32,784] int64[32]"')
    if LOSS in given:
        known("loss in --plan", given[LOSS], LOSSES)
    parts = number(given.get(PARTS, "1"), f"--plan {name}: {PARTS}")
    return own_problem(name, given[INPUTS], given.get(LOSS), parts, given.get(LAYERS))


def shares(ranks: int, axes: int) -> Iterator[tuple[int, ...]]:
    """All ways to lay `ranks` ranks along `axes` axes."""
    if axes == 1:
        yield (ranks,)
        return
    for first in range(1, ranks + 1):
        if ranks % first == 0:
            yield from ((first, *others) for others in shares(ranks // first, axes - 1))


def widest(shapes: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Those of some shapes that have ranks along the most axes. Another recipe draws the others: `dp+tp` along one axis
    is `dp` or `tp`."""
    known = list(shapes)
    least = min(shape.count(1) for shape in known)
    return [shape for shape in known if shape.count(1) == least]


def prepared(drawn: Drawn) -> tuple[Plan, Mesh, tuple[Any, ...]]:
    """(plan, mesh, whole inputs of the model, by micro-batch). Exports the model, which takes seconds; once for
    plans in sequence with the same sizes. Raises UsageError, ChoiceError or AxisError if sizes, blocks and mesh do not
    fit each other."""
    model, deck = drawn.problem, drawn.deck
    carriers = model.RECIPES[drawn.recipe]
    mesh, inputs, parts = _mesh(drawn, carriers), model.inputs(deck), micro_batches(deck)
    plan = plan_of(
        model,
        deck,
        _graph(drawn.model, drawn.own, tuple(drawn.sizes.items())),
        list(carriers),
        overlap=drawn.overlap,
        attention=drawn.attention,
    )
    require_fits(plan, mesh)
    return plan, mesh, split(inputs, parts)


@lru_cache(maxsize=1)
def _graph(name: str, own: tuple[tuple[str, str], ...], sizes: tuple[tuple[str, Any], ...]) -> Graph:
    from miniapps.partition.capture.shapes import graph_of

    model = problem_of(name, own)
    return graph_of(model, deck_of(model, {key: str(n) for key, n in sizes}))


def _mesh(drawn: Drawn, carriers: Mapping[str, str]) -> Mesh:
    return parse(mesh_text(drawn.mesh), carriers, drawn.ranks)


def choices_of(text: str, where: str) -> Choices:
    """The numbers of `8..32`, a range, or `8|16`; errors begin with `where`. Raises UsageError."""
    low, sign, high = text.partition("..")
    if sign:
        first, last = number(low, where), number(high, where)
        if first > last:
            raise UsageError(f"{where}={text}: the first number of a range is its least")
        return range(first, last + 1)
    return tuple(number(one, where) for one in text.split("|"))


def one_of(choices: Choices, rng: np.random.Generator) -> Any:
    """One of some choices; of a range, uniformly in the logarithm."""
    if isinstance(choices, range):
        drawn = np.exp(rng.uniform(log(choices.start), log(choices.stop)))
        return int(min(max(int(drawn), choices.start), choices.stop - 1))
    return choices[rng.integers(len(choices))]
