"""Stages of a plan and their picture: all that travels is in them, in an order that can be computed."""

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition.commands import draw, main
from miniapps.partition.cuts.mesh import Mesh
from miniapps.partition.showing import picture
from miniapps.partition.showing.explain import explain
from miniapps.partition.showing.staged import GIVEN, LEAVING, Edge, Stage, Stages, decode
from miniapps.partition.showing.stages import layer_of, stages_of
from tests.miniapps.partition.graphs import planned

CASES = [
    ("gpt", "dp+tp", 2, 2),
    ("gpt", "zero", 4),
    ("unet", "spatial", 2, 2),
    ("moe", "expert", 4),
    ("mlp", "tp", 2),
]


def staged(name, recipe, *sizes):
    carriers = models.model(name).RECIPES[recipe]
    axes = dict.fromkeys(carriers.values())
    mesh = Mesh(tuple(zip(axes, sizes, strict=True)), tuple(carriers.items()))
    plan = planned(name, recipe)[1]
    return stages_of(plan, mesh), explain(plan, mesh)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_all_that_travels_is_at_an_edge(case):
    found, told = staged(*case)
    by_kind: dict = {}
    for edge in found.edges:
        key = edge.kind, *edge.axes
        calls, nbytes = by_kind.get(key, (0, 0))
        by_kind[key] = calls + edge.calls, nbytes + edge.bytes
    by_kind.pop(("",), None)
    assert by_kind == {(c["kind"], *c["axes"]): (c["calls"], c["bytes"]) for c in told["collectives"]}


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_stages_come_after_what_they_read(case):
    found, _ = staged(*case)
    assert all(edge.source <= edge.target or edge.target == LEAVING for edge in found.edges)
    ways = [stage.backward for stage in found.stages]
    assert ways == sorted(ways) and True in ways
    assert sum(stage.operations for stage in found.stages) <= found.operations


def test_a_transformer_has_the_stages_of_tensor_parallelism():
    """Megatron's two all-reduces per layer and pass, each between a stage of many axes and one of batch alone."""
    found, _ = staged("gpt", "dp+tp", 2, 2)
    forward = [(s.layer, s.modules, s.axes) for s in found.stages if s.layer == "blocks.0" and not s.backward]
    assert forward == [
        ("blocks.0", ("norm1",), ("batch",)),
        ("blocks.0", ("q", "k", "v", "out"), ("batch", "heads")),
        ("blocks.0", ("out", "norm2"), ("batch",)),
        ("blocks.0", ("up", "down"), ("batch", "ff")),
        ("blocks.0", ("down",), ("batch",)),
    ]
    reduced = [e for e in found.edges if e.kind == "all-reduce" and e.axes in (("heads",), ("ff",))]
    assert len(reduced) == 8
    assert all(found.stages[e.source].axes == ("batch", *e.axes) for e in reduced)
    assert all(found.stages[e.target].axes == ("batch",) for e in reduced)


def test_layers_are_numbered_modules():
    assert [layer_of(x) for x in ("blocks.0.q.weight", "norm", "logits.weight", "")] == [
        "blocks.0",
        "norm",
        "logits",
        "",
    ]


def test_what_is_recorded_is_read_again_and_what_is_not_is_refused():
    found, _ = staged("gpt", "dp+tp", 2, 2)
    assert decode(found.encode()) == found
    document = json.loads(found.encode())
    far = document | {"edges": [document["edges"][0] | {"target": len(found.stages)}]}
    from_leaving = document | {"edges": [document["edges"][0] | {"source": LEAVING}]}
    many = document | {"stages": document["stages"] * 100}
    texts = [
        "",
        "[]",
        "{}",
        "1",
        "[" * 100_000,
        *map(json.dumps, (far, from_leaving, many, document | {"ranks": -1})),
    ]
    for text in texts:
        with pytest.raises(ValueError):
            decode(text)


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case)))
def test_the_picture_names_every_stage_and_all_that_travels(case):
    found, _ = staged(*case)
    text = " ".join(ElementTree.fromstring(picture.svg(found, "a title")).itertext())
    words = picture.as_text(found)
    assert "a title" in text
    for stage in found.stages:
        assert picture.name_text(stage)[:20] in text and picture.name_text(stage) in words
    for edge in found.edges:
        assert not edge.kind or (picture.sent_text(edge) in text and picture.sent_text(edge) in words)


def test_boxes_do_not_overlap():
    found, _ = staged("unet", "spatial", 2, 2)
    where = picture.layout(found)
    for way in (False, True):
        column = sorted(
            (where.top[k], where.height[k]) for k, s in enumerate(found.stages) if s.backward == way
        )
        assert all(y + height < below for (y, height), (below, _) in pairwise(column))


def test_a_plan_of_one_stage_can_be_drawn():
    one = Stages(("batch",), "data=1", 1, 1, 0, (Stage("", (), False, ("batch",), 1),), (Edge(GIVEN, 0),))
    assert "step" in picture.svg(one, "one")


def test_too_many_stages_are_refused_with_advice(tmp_path):
    stages = tuple(Stage("a", (), False, (), 1) for _ in range(picture.ROWS_MOST + 1))
    with pytest.raises(UsageError, match=r"61 stages are too many.*--size layers=2"):
        draw(Stages((), "data=1", 1, 61, 0, stages, ()), "", str(tmp_path / "a.svg"))


def test_explain_draws_and_names_the_file_that_it_cannot_write(tmp_path, capsys):
    file = tmp_path / "plan.svg"
    assert main(["explain", "mlp", "--quiet", "--picture", str(file)]) == 0
    assert re.search("<svg", file.read_text()) and "mlp, dp" in capsys.readouterr().out
    assert main(["explain", "mlp", "--quiet", "--picture", str(tmp_path / "no" / "plan.svg")]) == 2
    assert "--picture" in capsys.readouterr().err
