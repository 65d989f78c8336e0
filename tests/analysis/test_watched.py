"""The study of watched models: states of modules by step, the first difference, sizes, the map, many modules."""

import json

import pytest

from analysis.__main__ import main
from analysis.lint.rules import lint
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.report.build import build
from analysis.studies.watched.figures import MOST_ROWS, drawn, figures_of
from analysis.studies.watched.runs import modules_of, pair, place_of
from miniapps.trace.records import BEFORE, GRADIENT, LOSS, OUTPUT, WEIGHTS
from tests.analysis.watched_runs import GRADIENT_OF_LAST, MODULES, WEIGHTS_OF_LAST, names, write_watched

APART = {
    (2, GRADIENT_OF_LAST): 3,
    (2, WEIGHTS_OF_LAST): 1,
    (3, f"{OUTPUT}{MODULES[0]}"): 1,
    (3, WEIGHTS_OF_LAST): 2,
}


@pytest.fixture
def runs(tmp_path):
    return [write_watched(tmp_path / "a", {}), write_watched(tmp_path / "b", APART)]


def of(runs):
    return pair(load(runs), *((run.name, 0) for run in runs))


def test_each_module_pass_and_step_has_its_state(runs):
    states = of(runs).states
    apart = states[states["state"] != "equal"][["module", "pass", "step", "state"]].values.tolist()
    assert sorted(apart) == [
        ["0 (Linear)", "forward", 3, "differs"], ["2 (LayerNorm)", "backward", 2, "first"],
        ["2 (LayerNorm)", "weights", 2, "differs"], ["2 (LayerNorm)", "weights", 3, "differs"],
    ]  # fmt: skip
    assert states["module"].drop_duplicates().tolist() == ["input", *MODULES, "loss"]


def test_the_first_difference_and_the_sizes_are_those_of_the_records(runs):
    found = of(runs)
    assert found.first == (2, "2 (LayerNorm)", "backward", GRADIENT_OF_LAST)
    weights = found.sizes[found.sizes["what"] == "weights"].set_index("step")["largest"]
    assert weights[1] == 0 and weights[3] == pytest.approx(2 * weights[2], rel=1e-6) and weights[2] > 0


def test_the_terminal_and_json_say_it(runs, capsys):
    assert main(["watched", *map(str, runs)]) == 0
    text = capsys.readouterr().out
    assert "b:0 and a:0 part in step 2, in the backward pass of 2 (LayerNorm)" in text
    assert "2 of 3 modules differ at some step" in text and "1 module never differs" in text
    assert main(["watched", *map(str, runs), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    (first,) = document["tables"]["firsts"]
    assert (first["step"], first["module"], first["pass"]) == (2, "2 (LayerNorm)", "backward")
    assert {row["state"] for row in document["tables"]["states"]} == {"equal", "first", "differs"}


def test_equal_runs_have_a_sentence_and_no_figure(tmp_path, capsys):
    runs = [write_watched(tmp_path / name, {}) for name in ("a", "b")]
    assert figures_of(of(runs), 0) == []
    assert main(["watched", *map(str, runs)]) == 0
    assert "b:0 and a:0: no difference in 3 modules of the model." in capsys.readouterr().out


def test_the_report_has_the_map_with_the_first_difference_framed(runs):
    report = build(load(runs))
    figures = {figure.name: figure for figure in report.figures if figure.name.startswith("watched")}
    assert set(figures) == {"watched-0", "watched-growth-0"}
    data = figures["watched-0"].data
    assert data[data["state"] == "first"][["module", "pass", "step"]].values.tolist() == [
        ["2 (LayerNorm)", "backward", 2]
    ]
    assert "backward pass of 2 (LayerNorm), step 2" in figures["watched-0"].caption


@pytest.mark.parametrize("pattern", ["layers.{}", "blocks.{}.inner.norm"])
def test_many_modules_stand_together_and_the_first_difference_alone(tmp_path, pattern):
    modules = tuple(f"{pattern.format(i)} (LayerNorm)" for i in range(200))
    parameters = tuple(f"{pattern.format(i)}.weight" for i in range(200))
    apart = {(2, f"{GRADIENT}{parameters[77]}"): 1}
    runs = [
        write_watched(tmp_path / name, own, modules, parameters, range(1, 31))
        for name, own in (("a", {}), ("b", apart))
    ]
    found = of(runs)
    shown = drawn(found)
    assert len(shown["module"].drop_duplicates()) <= MOST_ROWS and shown["step"].nunique() <= 13
    assert shown["records"].sum() == found.states[found.states["step"].isin(shown["step"])]["records"].sum()
    first = shown[shown["state"] == "first"]
    assert first["module"].tolist() == [modules[77]] and first["step"].tolist() == [2]
    assert (shown["state"] != "equal").sum() == 1


def test_records_have_the_module_of_their_parameter():
    labels = modules_of(names())
    assert place_of(f"{GRADIENT}0.weight, values", labels) == ("0 (Linear)", "backward")
    assert place_of(f"{OUTPUT}1 (GELU)[0]", labels) == ("1 (GELU)", "forward")
    assert place_of(f"{WEIGHTS}scale", labels) == ("model", "weights") and place_of(LOSS, labels) == (
        "loss",
        "forward",
    )
    assert modules_of([f"{GRADIENT}lone.weight"]) == {"lone": "lone"}


def test_a_difference_in_a_step_without_records_is_a_limit(tmp_path):
    from miniapps.trace import Tracer
    from tests.analysis.synthetic import attributes

    runs = []
    for name in ("a", "b"):
        runs.append(tmp_path / name)
        runs[-1].mkdir()
        stated = {"run_id": name, "app": "learns", "config": {}, "options": {}}
        with Tracer(runs[-1] / "rank-00000.h5", attributes(0, 1, "none", "", **stated), size=1) as tracer:
            for step, differs in ((1, False), (10, name == "b")):
                tracer.at(0, step)
                tracer.fingerprint(f"{BEFORE}0.weight", 0, bytes([differs] * 16))
                tracer.fingerprint(f"{OUTPUT}0 (Linear) by rank", 0, bytes([differs] * 16))
    findings = lint(Overview(load(runs)))
    assert (findings["rule"] == "unrecorded-steps").any()
