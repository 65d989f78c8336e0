"""Graphs of many equal layers from a few: the same work and messages as those of a plain export."""

from dataclasses import replace

import pytest
from msgspec.structs import astuple

from miniapps.partition import models
from miniapps.partition.capture.export import export
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.graphs.stacked import TEMPLATE, NotStacked, repeated
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing.program import program_of
from tests.miniapps.partition.graphs import exported

FEW = {"samples": "4", "batch": "4", "tokens": "8", "width": "16", "feedforward": "32"}
MESHES = [("gpt", "dp+tp", "data=2,model=2"), ("gpt", "zero", "data=4"), ("bert", "tp", "model=4")]


def without_names(program):
    """All that a program says, but the names of nodes."""
    return [
        (
            of.ranks,
            of.memory,
            [({program.works[n]: count for n, count in s.calls}, s.rest) for s in of.segments],
            [astuple(wait)[1:] for wait in of.waits],
        )
        for of in program.classes
    ]


@pytest.mark.parametrize("level", ["none", "layout"])
@pytest.mark.parametrize(("name", "recipe", "mesh"), MESHES)
def test_a_repeated_layer_is_the_layer_of_a_plain_export(name, recipe, mesh, level):
    model = models.model(name)
    deck = deck_of(model, FEW | {"layers": "7"})
    carriers = model.RECIPES[recipe]
    plain = export(model.module(deck), model.inputs(deck))
    assert [node.target for node in graph_of(model, deck).nodes] == [node.target for node in plain.nodes]
    found = [
        program_of(plan_of(model, deck, graph, list(carriers)), parse(mesh, carriers, 4), level, "a step")
        for graph in (plain, graph_of(model, deck))
    ]
    assert without_names(found[0]) == without_names(found[1])


def test_few_layers_are_exported_as_they_are():
    model, deck, graph = exported("gpt", **FEW, layers="2")
    assert graph_of(model, deck) == graph


def test_layers_that_differ_are_refused():
    graph = exported("gpt", **FEW, layers=str(TEMPLATE))[2]
    other = next(node for node in graph.nodes if node.where.startswith("blocks.2"))
    nodes = tuple(
        replace(node, target="aten.other.default") if node is other else node for node in graph.nodes
    )
    with pytest.raises(NotStacked, match="differ"):
        repeated(replace(graph, nodes=nodes), "blocks", 9)
    with pytest.raises(NotStacked, match="differ, or there are not"):
        repeated(exported("gpt", **FEW, layers="3")[2], "blocks", 9)
    with pytest.raises(ValueError, match="the template has"):
        repeated(graph, "blocks", 4)
