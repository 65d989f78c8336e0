"""The search for the fastest candidate: what it compares, and that leaving out slow candidates changes no result."""

from dataclasses import replace

import numpy as np
import pytest

from analysis.errors import Unreachable
from analysis.predict.costs.machines import read_machine
from analysis.predict.plans.price import Prices
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition import search as searching
from miniapps.partition.capture.shapes import graph_of
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing import bounds
from miniapps.partition.pricing.candidates import DIMENSIONS, candidates, require_searchable
from miniapps.partition.pricing.program import program_of

DEVICE = """
name = "small"
latency = 1e-6
bandwidth = 1e9
[device]
product = 1e9
achieved = 0.8
memory = 1e12
capacity = {capacity}
launch = 1e-9
width = 2
[node]
devices = 8
latency = 1e-6
bandwidth = {inside}
"""
FEW = {"samples": "8", "batch": "4", "layers": "2", "tokens": "8", "width": "16", "feedforward": "32"}
SIZES = {
    "gpt": FEW,
    "mlp": {"samples": "16", "batch": "4"},
    "unet": {"samples": "4", "batch": "4"},
    "moe": {},
}
EVERY = ("blocks", "micro-batches", "schedule", "guarantee")


@pytest.fixture
def machine(tmp_path):
    def write(capacity="1e12", inside="1e10"):
        path = tmp_path / "machine.toml"
        path.write_text(DEVICE.format(capacity=capacity, inside=inside))
        return str(path)

    return write


def priced(programs, calibrations, machine, clock):
    """The price of `analysis price`, in this process."""
    of, plans, unpriced = Prices([], read_machine(machine)), [], []
    for program in programs:
        try:
            seconds = float(np.median(of.of(program, clock=clock).samples))
        except Unreachable as error:
            unpriced.append({"title": program.title, "reason": str(error)})
            continue
        plans.append({"title": program.title, "p50_s": seconds})
    return {"tables": {"plans": sorted(plans, key=lambda row: row["p50_s"]), "unpriced": unpriced}}


def sized(name):
    model = models.model(name)
    return model, deck_of(model, SIZES[name])


@pytest.mark.parametrize("name", SIZES)
def test_no_plan_takes_less_than_its_bounds(name, machine):
    model, deck = sized(name)
    path = machine()
    limits, prices = bounds.limits_of(path), Prices([], read_machine(path))
    graph, some = graph_of(model, deck), 0
    for one in candidates(model, deck, list(model.RECIPES), 4)[0]:
        plan = plan_of(model, deck, graph, list(model.RECIPES[one.recipe]))
        for level in ("none", "layout"):
            price = prices.of(program_of(plan, one.mesh, level, str(one)))
            least = bounds.least_seconds(plan, one.mesh, limits)
            assert 0 < least <= price.compute.max() * (1 + 1e-9)
            assert 0 < bounds.least_bytes(plan, one.mesh, limits) <= price.memory.max() * (1 + 1e-9)
            some += least > 0.3 * price.compute.max()
    assert some  # bounds that could leave something out


def test_what_is_left_out_is_slower_and_the_result_is_that_of_all(machine, monkeypatch):
    model, deck = sized("gpt")
    asking = searching.Asking("gpt", (), machine())
    monkeypatch.setattr(searching, "priced", priced)
    monkeypatch.setattr(searching, "FIRST", 3)
    about = model, deck, list(model.RECIPES), 4, asking
    found = searching.search(*about)
    monkeypatch.setattr(searching, "limits_of", lambda path: None)
    every = searching.search(*about)
    assert found.best == every.best and found.slower and not every.slower
    assert len(found.plans) + len(found.slower) == len(every.plans)
    assert f"{len(found.slower)} were left out" in found.sentence()
    seconds = {row["title"]: row["p50_s"] for row in every.price["tables"]["plans"]}
    title = {str(one): of for one, of in every.plans}
    fastest = min(seconds.values())
    assert all(fastest < least <= seconds[title[name]] for name, least in found.slower)
    kept = [row for row in every.price["tables"]["plans"] if row["p50_s"] == fastest]
    assert [row for row in found.price["tables"]["plans"] if row["p50_s"] == fastest] == kept


def test_weights_that_no_device_can_hold_are_impossible(machine, monkeypatch):
    model = models.model("gpt")
    deck = deck_of(model, FEW | {"width": "256", "feedforward": "1024", "vocabulary": "64"})
    monkeypatch.setattr(searching, "priced", priced)
    plan = plan_of(model, deck, graph_of(model, deck), ["batch"])
    limits = bounds.limits_of(machine())
    needed = bounds.least_bytes(plan, parse("data=2", {"batch": "data"}, 2), limits)
    asking = searching.Asking("gpt", (), machine(str(needed - 1)))
    found = searching.search(model, deck, ["dp", "tp"], 2, asking)
    assert [one.recipe for one in found.best] == ["tp"]
    assert any(name.startswith("dp over data=2") and "GB" in reason for name, reason in found.impossible)
    with pytest.raises(UsageError, match="every candidate needs more memory"):
        searching.search(model, deck, ["dp"], 2, asking)


def test_equal_programs_are_priced_once(machine, monkeypatch):
    """Without a guarantee the number of blocks changes nothing that a rank does, if each has as many."""
    model, deck = sized("mlp")
    monkeypatch.setattr(searching, "priced", priced)
    asking = searching.Asking("mlp", (), machine())
    found = searching.search(model, deck, ["dp"], 2, asking, EVERY)
    assert len(found.price["tables"]["plans"]) < len(found.plans)
    assert {one.level for one, _ in found.plans} == {"none", "run", "layout", "exact"}
    assert {one.micro_batches for one, _ in found.plans} >= {1, 2, 4}
    assert {dict(one.blocks)["batch"] for one, _ in found.plans} == {2, 4, 8}
    assert len({str(one) for one, _ in found.plans}) == len(found.plans)


def test_schedules_differ_only_in_pipelines():
    model, deck = sized("gpt")
    found, _ = candidates(model, deck, ["dp", "pp"], 2, ("schedule",))
    assert [(one.recipe, one.mesh.schedule) for one in found] == [
        ("dp", "1f1b"), ("pp", "gpipe"), ("pp", "1f1b"), ("pp", "circular"),
    ]  # fmt: skip


def test_wires_are_compared_where_the_guarantee_allows_them(machine, monkeypatch):
    """A slow link makes few bits the fastest; tensor parallelism sends no gradients, so its programs are one."""
    model, deck = sized("mlp")
    monkeypatch.setattr(searching, "priced", priced)
    slow = searching.Asking("mlp", (), machine(inside="1e3"))
    found = searching.search(model, deck, ["dp", "tp"], 2, slow, ("wire",), "layout")
    of_dp = {one.wire for one, _ in found.plans if one.recipe == "dp"}
    assert of_dp >= {"as is", "fp8", "sign"}
    assert len({title for one, title in found.plans if one.recipe == "tp"}) == 1
    rows = {row["title"]: row["p50_s"] for row in found.price["tables"]["plans"]}
    seconds = {one.wire: rows[title] for one, title in found.plans if one.recipe == "dp"}
    assert seconds["sign"] < seconds["fp8"] < seconds["as is"]
    exact, _ = candidates(model, deck, ["dp"], 2, ("wire",), "exact")
    assert [one.wire for one in exact] == ["as is"]


def test_attentions_and_overlaps_are_compared_where_a_recipe_cuts_keys(machine, monkeypatch):
    model, deck = sized("gpt")
    monkeypatch.setattr(searching, "priced", priced)
    found = searching.search(
        model,
        deck,
        ["dp", "sp"],
        2,
        searching.Asking("gpt", (), machine()),
        ("attention", "overlap"),
        "layout",
    )
    ways = {(one.recipe, one.attention) for one, _ in found.plans}
    assert ways == {("dp", "gathered"), ("sp", "gathered"), ("sp", "ring")}
    assert {one.overlap for one, _ in found.plans} == {"off", "gradients", "sums", "rings"}
    assert len({str(one) for one, _ in found.plans}) == len(found.plans) == 3 * 4
    assert not found.impossible and not found.price["tables"]["unpriced"]


def test_owners_are_compared_of_rings_alone():
    model, deck = sized("gpt")
    found, _ = candidates(model, deck, ["dp", "sp"], 2, ("attention", "owners"))
    ways = [(one.recipe, one.attention, one.mesh.zigzag) for one in found]
    assert ways == [
        ("dp", "gathered", ()), ("sp", "gathered", ()), ("sp", "ring", ()), ("sp", "ring", ("tokens",))
    ]  # fmt: skip
    assert str(found[-1]) == "sp over sequence=2, attention ring, tokens=zigzag"


def test_a_ring_that_no_recipe_has_is_refused():
    model, deck = sized("gpt")
    found, refused = candidates(model, deck, ["dp", "sp"], 2, attention="ring")
    assert [one.recipe for one in found] == ["sp"] and "no axis cuts the keys" in dict(refused)[
        "dp over data=2"
    ]
    with pytest.raises(UsageError, match="no axis cuts the keys"):
        candidates(model, deck, ["dp"], 2, attention="ring")


@pytest.mark.parametrize("name", SIZES)
def test_a_graph_has_no_blocks(name):
    """So the search exports once for all numbers of blocks."""
    model, deck = sized(name)
    fewer = replace(deck, batch=2)
    assert graph_of(model, deck) == graph_of(model, fewer)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("ranks", "one for each number of ranks"),
        ("speed", "there are mesh, blocks"),
    ],
)
def test_what_cannot_be_searched_is_refused(word, message):
    with pytest.raises(UsageError, match=message):
        require_searchable(["mesh", word])
    require_searchable(DIMENSIONS)


def test_too_many_candidates_are_refused(monkeypatch):
    monkeypatch.setattr("miniapps.partition.pricing.candidates.MOST", 3)
    model, deck = sized("gpt")
    with pytest.raises(UsageError, match="more than 3 candidates"):
        candidates(model, deck, list(model.RECIPES), 4, ("blocks",))
