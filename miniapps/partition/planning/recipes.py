"""Recipes: the annotated axes of a model, and the axis of the mesh that carries each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

from kernels.guarantees import ChoiceError, known
from miniapps.errors import UsageError
from miniapps.partition.cuts.mesh import number
from miniapps.partition.cuts.steps import ATTENTION_STEPS, STAGE, Compute, Plan
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.models import Problem
from miniapps.partition.planning.annotate import Annotation, Given
from miniapps.partition.planning.early import OFF, overlapped
from miniapps.partition.planning.pipeline import staged
from miniapps.partition.planning.plan import plan
from miniapps.partition.planning.smaller.attention import ATTENTION, GATHERED, RING
from miniapps.partition.rules.project import Axes

STORED = "stored"
NO_KEYS = (
    "attention 'ring': no axis cuts the keys of an attention without mask and dropout; choose a recipe that cuts "
    "tokens, such as sp, or attention gathered"
)


def plan_of(
    model: Problem,
    deck,
    graph: Graph,
    names: Iterable[str],
    fuse: bool = True,
    overlap: str = OFF,
    attention: str = GATHERED,
) -> Plan:
    """The plan of a step with the axes `names`; `overlap`: which messages begin early (`early.OVERLAPS`);
    `attention`: `gathered` or `ring`. Raises ChoiceError for a ring where no axis cuts keys."""
    ring = known("attention", attention, ATTENTION) == RING
    layers = model.layers(deck)
    axes = tuple(
        staged(graph, layers, axis.blocks) if axis.name == STAGE else axis
        for axis in chosen(model, deck, names)
    )
    found = plan(graph, axes, annotated_by(model, deck, graph, names), model.TOGETHER, fuse, layers, ring)
    if ring and not any(isinstance(s, Compute) and s.target == ATTENTION_STEPS[0] for s in found.steps):
        raise ChoiceError(NO_KEYS)
    return overlapped(found, overlap)


def require_attention(model: Problem, deck, names: Iterable[str], attention: str) -> None:
    """Raise ChoiceError for a ring where no axis cuts keys. Of a module of the user's own, whose graph is known, this
    takes a plan."""
    if attention != RING:
        return
    if model.exported is not None:
        plan_of(model, deck, model.exported, names, attention=attention)
        return
    keys = [axis for axis in chosen(model, deck, names) if axis.name == model.KEYS]
    if not keys or keys[0].blocks == 1 or getattr(deck, "dropout", 0):
        raise ChoiceError(NO_KEYS)


def micro_batches(deck) -> int:
    """The number of micro-batches of a step; 1 for models whose decks cannot divide it."""
    return getattr(deck, "micro_batches", 1)


def chosen(model: Problem, deck, names: Iterable[str]):
    """The axes `names`, in the order of the model. Raises ChoiceError for unknown and for repeated names."""
    there, names = {axis.name: axis for axis in model.axes(deck)}, tuple(names)
    for name in names:
        known("axis of --axes", name, tuple(there))
        if names.count(name) > 1:
            raise ChoiceError(f"axis of --axes {name!r}: given {names.count(name)} times; give it once")
    return tuple(axis for name, axis in there.items() if name in set(names))


def annotated_by(model: Problem, deck, graph: Graph, names: Iterable[str]) -> Given:
    """The annotations of a model with the axes `names`; other dims are None. Of several axes for one dim the first of
    `names` cuts it."""
    names = set(names)
    given: dict[str | int, Annotation] = {}
    inputs = sum(source.kind == "input" for source in graph.sources)
    each = inputs // micro_batches(deck)
    for key, dims in model.annotations(deck).items():
        kept = tuple(_first_of(axis, names) for axis in dims)
        if any(kept):
            of_all = range(key, inputs, each) if isinstance(key, int) else (key,)
            given |= dict.fromkeys(of_all, Annotation(kept, int(any(axis in model.LATER for axis in kept))))
    if STORED in names:
        given |= stored(graph, Axes(model.axes(deck)), given)
    return given


def _first_of(axis: str | tuple[str, ...] | None, names: set[str]) -> str | None:
    """The axis, or the first of several, that is in `names`."""
    return next((one for one in (axis if isinstance(axis, tuple) else (axis,)) if one in names), None)


def stored(graph: Graph, axes: Axes, given: Given) -> dict[str | int, Annotation]:
    """Annotations that store parameters in blocks of their first dim, if it is large enough, for parameters without
    another annotation."""
    parameters = [s for s in graph.sources if s.kind == "parameter" and s.key not in given and s.tensor.shape]
    return {
        s.key: Annotation((STORED, *[None] * (len(s.tensor.shape) - 1)), stored=True)
        for s in parameters
        if axes.fits(STORED, s.tensor.shape[0])
    }


def parsed(text: str, name: str, of: type) -> float:
    """A number of a deck: a whole one from 1 on, or a float. Raises UsageError."""
    if of is not float:
        return number(text, f"{name}={text}")
    try:
        return float(text)
    except ValueError as error:
        raise UsageError(f"{name}={text}: give a number such as 0.1") from error


def deck_of(model: Problem, settings: dict[str, str]):
    """The deck of a model with the numbers in `settings`. Raises UsageError, ChoiceError."""
    usual = model.Deck()
    for name in settings:
        known("size", name, tuple(field.name for field in fields(usual)))
    given = {name: parsed(value, name, type(getattr(usual, name))) for name, value in settings.items()}
    deck = replace(usual, **given)
    if reason := model.refused(deck):
        raise ChoiceError(reason)
    return deck
