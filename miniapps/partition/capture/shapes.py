"""The graph of a model of any size: exported without memory for numbers, and equal layers by repetition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from miniapps.partition.capture.export import export
from miniapps.partition.graphs.graph import Graph
from miniapps.partition.graphs.stacked import TEMPLATE, NotStacked, repeated
from miniapps.partition.models import MeshModel


def graph_of(model: MeshModel, deck: Any) -> Graph:
    """The graph of a model's step. Its values have other names than those of a plain export if layers are repeated.
    Raises ExportError."""
    if model.STACK and deck.layers > TEMPLATE:
        try:
            return repeated(_exported(model, replace(deck, layers=TEMPLATE)), model.STACK, deck.layers)
        except NotStacked:  # its layers differ
            pass
    return _exported(model, deck)


def _exported(model: MeshModel, deck: Any) -> Graph:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(allow_non_fake_inputs=True):
        return export(model.module(deck), model.inputs(deck))
