"""The graph of a model of any size: exported without memory for numbers, and equal layers by repetition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from miniapps.partition.capture.export import of_micro_batch
from miniapps.partition.graphs import stacked
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.graphs.repeat import repeated
from miniapps.partition.graphs.stacked import TEMPLATE, NotStacked
from miniapps.partition.models import Problem
from miniapps.partition.planning.recipes import micro_batches


def graph_of(model: Problem, deck: Any) -> Graph:
    """The graph of a model's step. If layers are repeated, its values have other names than those of `shapes_of`, and
    so its plan has another hash. Raises ExportError."""
    if model.STACK and deck.layers > TEMPLATE:
        try:
            graph = _of_micro_batch(model, replace(deck, layers=TEMPLATE))
            return repeated(stacked.repeated(graph, model.STACK, deck.layers), micro_batches(deck))
        except NotStacked:  # its layers differ
            pass
    return shapes_of(model, deck)


def shapes_of(model: Problem, deck: Any) -> Graph:
    """The graph of a model's step, as `export` gives it. Raises ExportError."""
    if model.exported is not None:
        return model.exported
    return repeated(_of_micro_batch(model, deck), micro_batches(deck))


def _of_micro_batch(model: Problem, deck: Any) -> Graph:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return of_micro_batch(model.module(deck), model.inputs(deck), None, micro_batches(deck))
