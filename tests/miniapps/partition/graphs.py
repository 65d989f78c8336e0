"""Graphs of the models, each exported once."""

from functools import cache

from miniapps.partition import models
from miniapps.partition.capture.export import export
from miniapps.partition.planning.recipes import deck_of, micro_batches, plan_of


@cache
def exported(name: str, **sizes: str):
    """(model, deck, graph)."""
    model = models.model(name)
    deck = deck_of(model, sizes)
    return model, deck, export(model.module(deck), model.inputs(deck), micro_batches=micro_batches(deck))


@cache
def planned(name: str, recipe: str):
    """(graph, plan) of a recipe, on the default deck."""
    model, deck, graph = exported(name)
    return graph, plan_of(model, deck, graph, model.RECIPES[recipe])
