"""The graph of a model of any size: exported without memory for numbers, and equal layers by repetition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from miniapps.partition.capture.export import export
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.graphs.stacked import TEMPLATE, NotStacked, repeated
from miniapps.partition.models import Problem


def graph_of(model: Problem, deck: Any) -> Graph:
    """The graph of a model's step. If layers are repeated, its values have other names than those of `shapes_of`, and
    so its plan has another hash. Raises ExportError."""
    if model.STACK and deck.layers > TEMPLATE:
        try:
            return repeated(shapes_of(model, replace(deck, layers=TEMPLATE)), model.STACK, deck.layers)
        except NotStacked:  # its layers differ
            pass
    return shapes_of(model, deck)


def shapes_of(model: Problem, deck: Any) -> Graph:
    """The graph of a model's step, as `export` gives it. Raises ExportError."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return export(model.module(deck), model.inputs(deck))
