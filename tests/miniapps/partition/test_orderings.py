"""Orderings of a plan's sums: those that a guarantee allows, in its events, and in a search."""

import pytest
from mpi4py import MPI

from kernels.allreduce import Reduction
from kernels.guarantees import LEVELS, ChoiceError, meets
from miniapps.calibrate import APP as CALIBRATE
from miniapps.errors import UsageError
from miniapps.partition import models
from miniapps.partition import search as searching
from miniapps.partition.cuts.mesh import parse
from miniapps.partition.execution.orderings import reduction, require_ordering, usual
from miniapps.partition.planning.recipes import deck_of, plan_of
from miniapps.partition.pricing.candidates import candidates, named
from miniapps.partition.pricing.dry import dry_run
from miniapps.partition.pricing.events import Summed
from miniapps.partition.pricing.program import program_of
from miniapps.runner.main import main as run_application
from tests.miniapps.partition.graphs import exported

FEW = {"samples": "16", "batch": "4"}
MEASURED = (
    "library",
    "direct",
    "ring",
    "direct in float64",
    "direct in exact",
    "ring in exact",
    "block-tree",
)


@pytest.mark.parametrize("level", LEVELS)
def test_every_ordering_of_a_guarantee_keeps_it(level):
    own = reduction(level, "sum", "float32", 8)
    assert own.label == usual(level) and meets(own.guarantee, level)
    for by in named(level):
        require_ordering(by, level)
        for combine, dtype in (("sum", "float32"), ("sum", "float64"), ("max", "float32"), ("sum", "int64")):
            found = reduction(level, combine, dtype, 8, by=by)
            assert meets(found.guarantee, min(level, "layout", key=LEVELS.index)), (by, combine, dtype)
            if (combine, dtype) == ("sum", "float32"):
                assert found.label == by and meets(found.guarantee, level)
        scattered = reduction(level, "sum", "float32", 8, (0, 4, 8), by)
        assert scattered.collective == "reduce-scatter" and meets(scattered.guarantee, level)
    assert reduction("none", "sum", "float32", 8, (0, 4, 8)).ordering == "direct"


@pytest.mark.parametrize(
    ("by", "level", "message"),
    [
        ("ring", "layout", "added by block-tree; choose --guarantee exact"),
        ("ring", "exact", "promises 'run', less than the 'exact'"),
        ("library", "run", "promises 'none', less than the 'run'"),
        ("block-tree", "none", "choose --guarantee layout"),
        ("block-tree in exact", "run", "choose --guarantee layout"),
        ("arrival", "none", "no order of arrival to repeat"),
        ("wheel", "none", "unknown all-reduce ordering 'wheel'"),
        ("direct over fp8", "none", "name its wire with --wire"),
    ],
)
def test_orderings_that_a_plan_cannot_have_are_refused(by, level, message):
    with pytest.raises(ChoiceError, match=message):
        require_ordering(by, level)
    require_ordering("", level)


@pytest.mark.parametrize(
    ("level", "by"),
    [("none", "ring"), ("run", "rabenseifner"), ("run", "direct in exact"), ("exact", "ring in exact")],
)
@pytest.mark.parametrize("recipe", ["dp", "zero"])
def test_events_and_programs_have_the_ordering(level, by, recipe):
    model, deck, graph = exported(
        "gpt", samples="4", batch="4", layers="1", tokens="8", width="16", feedforward="32"
    )
    plan = plan_of(model, deck, graph, list(model.RECIPES[recipe]))
    mesh = parse("data=2", model.RECIPES[recipe], 2)
    usually, found = (
        [
            each
            for each in dry_run(plan, mesh, 0, level, ordering=ordering)
            if isinstance(each, Summed) and each.group
        ]
        for ordering in ("", by)
    )
    assert len(usually) == len(found) > 1
    for one, other in zip(usually, found, strict=True):
        assert (one.node, one.elements, one.dtype, one.group) == (
            other.node,
            other.elements,
            other.dtype,
            other.group,
        )
        assert (one.blocks == other.blocks) or level != "exact"
    labels = {
        wait.label
        for wait in program_of(plan, mesh, level, "a plan", ordering=by).classes[0].waits
        if wait.label
    }
    assert by in labels


def test_a_search_compares_measured_orderings_that_keep_the_guarantee(monkeypatch):
    model, deck = models.model("mlp"), deck_of(models.model("mlp"), FEW)
    programs = {}

    def priced(given, calibrations, machine, clock):
        programs.update({each.title: each for each in given})
        rows = [{"title": each.title, "p50_s": k + 1.0} for k, each in enumerate(given)]
        return {"tables": {"plans": rows, "unpriced": []}}

    monkeypatch.setattr(searching, "priced", priced)
    monkeypatch.setattr(searching, "measured_in", lambda asking: list(MEASURED))
    expected = {
        "none": {"", "direct", "ring", "direct in float64", "direct in exact", "ring in exact"},
        "run": {"", "ring", "direct in float64", "direct in exact", "ring in exact"},
        "layout": {""},
        "exact": {"", "ring in exact"},
    }
    for level in LEVELS:
        found = searching.search(
            model, deck, ["dp"], 2, searching.Asking("mlp", ("cal",)), ["ordering"], level
        )
        assert {one.ordering for one, _ in found.plans} == expected[level]
        assert all(f"by {one.ordering or usual(level)}" in str(one) for one, _ in found.plans)
        for one, title in found.plans:
            labels = {wait.label for wait in programs[title].classes[0].waits}
            assert (one.ordering or usual(level)) in labels
        assert set(found.unmeasured) == {
            each for each in named(level) if each not in MEASURED and each != usual(level)
        }
        assert ("calibrate --reduction" in found.sentence()) == (level != "layout")
    both, _ = candidates(
        model, deck, ["dp"], 2, ("guarantee", "wire", "ordering"), "layout", orderings=["", *MEASURED]
    )
    assert {(one.level, one.ordering) for one in both} == {
        ("layout", ""), ("exact", ""), ("exact", "ring in exact"),
    }  # fmt: skip
    assert len({one.wire for one in both if one.level == "layout"}) > 3
    assert {one.wire for one in both if one.level == "exact"} == {"as is"}


def test_measured_orderings_are_those_of_the_calibrations(tmp_path):
    out = tmp_path / "cal"
    words = [
        "--budget",
        "0",
        "--what",
        "collectives",
        "--reduction",
        "ring",
        "--reduction",
        "direct in exact",
    ]
    given = [*words, "--out", str(out), "--no-progress", "--log-level", "error"]
    assert run_application(CALIBRATE, given, MPI.COMM_SELF) == 0
    asking = searching.Asking("mlp", (str(out),))
    assert searching.measured_in(asking) == ["direct in exact", "ring"]
    assert all(Reduction.named(each, (1,)) for each in searching.measured_in(asking))
    with pytest.raises(UsageError, match=r"--calibration .*nowhere"):
        searching.measured_in(searching.Asking("mlp", (str(tmp_path / "nowhere"),)))
    with pytest.raises(UsageError, match="a machine file has one price for all orderings"):
        searching.measured_in(searching.Asking("mlp", ()))
