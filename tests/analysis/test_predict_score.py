"""Predictions against later runs: errors beside floors, and missing proofs."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.predict.reading.measured import hash_of_run, measured
from analysis.predict.reading.skeleton import skeleton
from analysis.predict.scoring import baselines
from analysis.predict.scoring.figures import series_of
from analysis.predict.scoring.ledger import append
from analysis.predict.scoring.price_score import floor_of_ratios
from analysis.predict.scoring.score import crps, floor_of, methods, score
from analysis.predict.scoring.sections import predict_sections
from analysis.predict.scoring.tables import names, region_tables, sentences
from miniapps.trace import TraceError
from miniapps.untrusted.ledger import read_ledger
from tests.analysis.predict_runs import predicted, write_ledger, write_steps, write_study


def call(*arguments):
    return main([str(argument) for argument in arguments])


def scored(ledger, *runs, within=None):
    return score(load(list(runs)), read_ledger(ledger), within)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """The ledger of a study, which has its runs beside it."""
    return write_study(tmp_path_factory.mktemp("study"))


@pytest.fixture
def empty(tmp_path):
    """A ledger without rows."""
    return write_ledger(tmp_path / "ledger.jsonl")


@pytest.mark.parametrize("zeroth", [False, True])
def test_times_are_of_steps_without_what_comes_before_them(tmp_path, zeroth):
    run = write_steps(tmp_path / "run", [10, 20], size=2, zeroth=zeroth)
    known = measured(load([run]))
    assert skeleton(run).steps.tolist() == [1, 2, 3, 4]
    assert skeleton(run).wall_s == pytest.approx(0.010)
    assert skeleton(run).repeats == [pytest.approx((0.005, 0.010)), pytest.approx((0.010, 0.020))]
    assert known.points["wall_s"].tolist() == pytest.approx([0.010, 0.020])
    assert known.points["cpu_s"].tolist() == pytest.approx([0.005, 0.010])
    assert known.points["waiting_s"].tolist() == pytest.approx([0.002, 0.004])
    first = known.regions[known.regions["repeat"] == 0].set_index("name")["seconds"]
    assert first.to_dict() == pytest.approx({"work": 0.008, "sum": 0.002, "step": 0.0})


def test_an_error_stands_beside_the_floor_of_its_repeats(tmp_path, empty):
    append(empty, predicted(100))
    append(empty, predicted(50, 2))
    for ranks, times in ((1, (110, 112)), (2, (45, 47))):
        for ms in times:
            write_steps(tmp_path / f"runs/{ranks}-{ms}", [ms], size=ranks, ledger=empty)
    own = scored(empty, tmp_path / "runs", within=0.15)
    by_target = [np.mean(np.log([1.1, 1.12])), np.mean(np.abs(np.log([0.9, 0.94])))]
    (total,) = own.summary.to_dict("records")
    assert total["error"] == pytest.approx(np.expm1(np.mean(by_target)))
    assert own.targets["bias"].tolist() == pytest.approx([np.expm1(by_target[0]), np.expm1(-by_target[1])])
    assert own.targets["floor"].tolist() == pytest.approx([112 / 110 - 1, 47 / 45 - 1])
    assert (total["inside"], total["runs"], total["verdict"], own.verdict) == (1, 4, "passed", "passed")
    assert own.regions[own.regions["name"] == "work"]["ratio"].tolist() == pytest.approx([1.11, 0.92])
    assert scored(empty, tmp_path / "runs", within=0.05).verdict == "not passed"
    assert scored(empty, tmp_path / "runs").verdict == "scored"


@pytest.mark.parametrize("times", [[100], [90, 100]])
def test_without_a_floor_of_at_most_a_tenth_nothing_is_passed(tmp_path, empty, capsys, times):
    append(empty, predicted(95))
    runs = [write_steps(tmp_path / f"r{ms}", [ms], ledger=empty) for ms in times]
    assert call("score", empty, *runs) == 0
    assert call("score", empty, *runs, "--within", "50") == 3
    assert capsys.readouterr().out.count("not testable: ") == 2


def test_the_last_prediction_before_a_run_counts(tmp_path, empty):
    append(empty, predicted(10))
    append(empty, predicted(100))
    run = write_steps(tmp_path / "r", [100], ledger=empty)
    append(empty, predicted(1000))
    own = scored(empty, run)
    assert own.targets["row"].tolist() == [2] and own.summary["error"][0] == pytest.approx(0)
    assert not own.refused and "with several earlier predictions" in own.notes[0]


def test_a_prediction_that_came_after_its_run_is_refused(tmp_path, empty, capsys):
    run = write_steps(tmp_path / "r", [100], ledger=empty)
    append(empty, predicted(100))
    assert call("score", empty, run) == 3
    assert "line 1 of" in (out := capsys.readouterr().out) and "is younger than this run" in out


def test_a_run_without_a_ledger_proves_nothing(tmp_path, empty, capsys):
    append(empty, predicted(100))
    assert call("score", empty, write_steps(tmp_path / "r", [100])) == 3
    assert "started without --ledger" in capsys.readouterr().out


def test_a_run_that_no_row_predicts_is_refused(tmp_path, empty, capsys):
    append(empty, predicted(100))
    for other in ({"size": 2}, {"problem": "p1"}, {"app": "solver"}):
        run = write_steps(tmp_path / next(iter(other)), [100], ledger=empty, **other)
        assert call("score", empty, run) == 3
        assert "no row of" in capsys.readouterr().out


def test_rows_that_a_run_saw_cannot_be_taken_away_or_replaced(tmp_path, empty, capsys):
    append(empty, predicted(100))
    append(empty, predicted(50, 2))
    run = write_steps(tmp_path / "r", [100], ledger=empty)
    first, _ = empty.read_bytes().splitlines(keepends=True)
    empty.write_bytes(first)
    assert call("score", empty, run) == 3
    assert "rows were removed" in capsys.readouterr().out
    append(empty, predicted(60, 2))  # a chain of its own, as long as the one before
    assert call("score", empty, run) == 3
    assert "rows were changed" in capsys.readouterr().out


def test_a_changed_ledger_is_refused_with_its_line_in_words_and_as_json(tmp_path, empty, capsys):
    append(empty, predicted(100))
    run = write_steps(tmp_path / "r", [100], ledger=empty)
    empty.write_bytes(empty.read_bytes().replace(b"0.1,", b"0.2,"))
    assert call("score", empty, run) == 3
    assert f"refused: {empty}: line 1: " in capsys.readouterr().out
    assert call("score", empty, run, "--json") == 3
    assert '"exit_code": 3' in capsys.readouterr().out
    assert call("report", run, "--ledger", empty, "-o", tmp_path / "r.html") == 2


def test_a_ledger_that_is_not_there_is_bad_usage(tmp_path, capsys):
    assert call("score", tmp_path / "nowhere", write_steps(tmp_path / "r", [100])) == 2
    assert "nowhere: cannot be read: No such file" in capsys.readouterr().err


def test_a_clock_that_runs_backwards_is_refused_with_its_place(tmp_path, empty, capsys):
    append(empty, predicted(100))
    run = write_steps(tmp_path / "r", [100], ledger=empty, jump=3)
    assert call("score", empty, run) == 2
    assert f"{run}: rank 0: its clock ran backwards in event" in (err := capsys.readouterr().err)
    assert "(repeat 0, step 3, sum)" in err


def test_times_that_are_no_numbers_are_refused_with_their_place(tmp_path, empty, capsys, monkeypatch):
    from miniapps.trace import Tracer

    append(empty, predicted(100))
    usage = Tracer.usage
    monkeypatch.setattr(
        Tracer,
        "usage",
        lambda self, name, step, value: usage(self, name, step, math.nan if step == 2 else value),
    )
    run = write_steps(tmp_path / "r", [100], ledger=empty)
    assert call("score", empty, run) == 2
    assert "rank 0, repeat 0, step 2: a CPU time of nan s" in capsys.readouterr().err


def test_a_run_without_times_is_refused(tmp_path, empty, capsys):
    append(empty, predicted(100))
    run = write_steps(tmp_path / "r", [100], steps=0, ledger=empty)
    assert call("score", empty, run) == 2
    assert "repeat 0 recorded no steps with times" in capsys.readouterr().err


def test_where_no_run_can_be_scored_it_says_so_and_ends_with_2(tmp_path, empty, capsys):
    write_steps(tmp_path / "cut", [100], ledger=write_ledger(tmp_path / "ledger.jsonl", predicted(100)))
    for file in (tmp_path / "cut").glob("rank-*.h5"):
        file.write_bytes(file.read_bytes()[:100])
    assert main(["score", str(tmp_path / "ledger.jsonl"), str(tmp_path / "cut")]) == 2
    source = write_steps(tmp_path / "source", [100])
    ledger = write_ledger(tmp_path / "of-source.jsonl", predicted(100, 1, [source]))
    capsys.readouterr()
    assert main(["score", str(ledger), str(source)]) == 2
    assert "could be scored" in capsys.readouterr().err


def test_simple_predictions_are_made_from_the_same_runs(study):
    own = scored(study, study.parent)
    two = own.targets[own.targets["ranks"] == 2].iloc[0]
    assert two["inverse_s"] == pytest.approx(0.101 / 2)
    assert two["replay_s"] == pytest.approx(0.0808 / 2 + 0.0202)
    law = {1: np.mean([0.1, 0.102, *own.samples[own.samples["row"] == 1]["seconds"]])}
    law |= {p: own.samples[own.samples["row"] == row]["seconds"].mean() for row, p in ((3, 4), (4, 8))}
    assert two["extrap_s"] == pytest.approx(baselines.extra_p(law, 2))
    beside = methods(own.targets).set_index("method")
    assert beside.loc["1/p", "targets"] == 4 and beside.loc["1/p", "better"] == 3
    assert beside.loc["prediction", "error"] == pytest.approx(own.summary["error"][0])
    assert not own.refused  # the source was not predicted, and need not be
    alone = scored(study, study.parent / "p2-0", study.parent / "p2-1")
    assert alone.targets[["inverse_s", "replay_s", "extrap_s"]].isna().all(axis=None)
    assert set(alone.targets["best"]) == {""}  # without a baseline there is nothing to be better than
    assert alone.summary[["better", "compared"]].values.tolist() == [[0, 0]]


def test_cpu_times_are_scored_as_cpu_times(tmp_path, empty):
    append(empty, predicted(50, clock="cpu"))
    append(empty, predicted(100))
    runs = [write_steps(tmp_path / f"r{i}", [100 + i], ledger=empty) for i in range(2)]
    own = scored(empty, *runs)
    assert own.targets["clock"].tolist() == ["cpu", "wall"]
    assert own.targets["measured_s"].tolist() == pytest.approx([0.05025, 0.1005])
    assert own.summary["kind"].tolist() == ["CPU time", "wall clock"]


def test_more_ranks_than_cores_are_scored_apart(tmp_path, empty):
    append(empty, predicted(100, 2))
    append(empty, predicted(80, 4))
    for size, ms in ((2, 100), (4, 80)):
        environment = {"node": "n1", "cores": 2, "variables": {}}
        for i in range(2):
            write_steps(
                tmp_path / f"r/{size}-{i}", [ms * 1.01**i], size=size, ledger=empty, environment=environment
            )
    own = scored(empty, tmp_path / "r", within=0.03)
    assert own.summary["kind"].tolist() == ["wall clock", "wall clock, more ranks than cores"]
    assert own.verdict == "passed"
    write_steps(tmp_path / "r/noise", [160], size=4, ledger=empty, environment=environment)
    assert scored(empty, tmp_path / "r", within=0.03).verdict == "not testable"


def test_the_floor_is_the_middle_distance_of_two_runs():
    assert floor_of([1.0, 1.1, 1.1]) == pytest.approx(0.1)
    assert math.isnan(floor_of([1.0]))


def test_the_crps_of_a_point_is_its_distance_and_the_right_spread_is_best():
    point = predicted(100, quantiles=(0.1,) * 7)
    assert [crps(point, y) for y in (0.08, 0.1, 0.15)] == pytest.approx([0.02, 0.0, 0.05])
    z = np.array([-1.6448536, -1.2815516, -0.6744898, 0.0, 0.6744898, 1.2815516, 1.6448536])
    drawn = 1 + 0.1 * np.random.default_rng(1).normal(size=500)
    mean = {
        (shift, wide): np.mean(
            [crps(predicted(1, quantiles=tuple(1 + shift + 0.1 * wide * z)), y) for y in drawn]
        )
        for shift, wide in ((0, 1), (0.03, 1), (-0.03, 1), (0, 0.3), (0, 3))
    }
    assert min(mean, key=mean.get) == (0, 1)


@pytest.mark.parametrize("law, ranks", [
    (lambda p: 1 + 8 / p, (1, 2, 4, 8)), (lambda p: 3.0, (1, 2, 4)), (lambda p: 1 + p * np.log2(p), (2, 4, 8, 16, 32)),
])  # fmt: skip
def test_the_form_of_extra_p_is_found(law, ranks):
    assert baselines.extra_p({p: law(p) for p in ranks}, 64) == pytest.approx(law(64))


def test_too_few_rank_counts_make_no_law():
    assert math.isnan(baselines.extra_p({1: 2.0, 2: 1.0}, 4))


def test_a_hash_is_of_the_traces_of_a_run_alone(tmp_path):
    run = write_steps(tmp_path / "a", [10])
    before = hash_of_run(run)
    load([run])  # which leaves a cache beside them
    shutil.copytree(run, tmp_path / "copy")
    assert hash_of_run(run) == before == hash_of_run(tmp_path / "copy")
    assert hash_of_run(write_steps(tmp_path / "b", [10])) != before
    with pytest.raises(TraceError, match="no rank"):
        hash_of_run(tmp_path)


def test_the_report_has_predictions_where_it_is_given_their_ledger(study):
    frames, ledger = load([study.parent]), read_ledger(study)
    assert predict_sections(Overview(frames)) == []
    (section,) = predict_sections(Overview(frames, ledger=ledger))
    assert section.intro.startswith(
        "Scored: 6.6% geometric mean error over a floor of 1.4%, of 5 targets in 20 runs"
    )
    errors, rows = (
        section.figures[1],
        [table for title, table in section.tables if title.startswith("The ledger")],
    )
    assert [label for _, label in errors.legend] == ["prediction", "1/p", "mean replay", "Extra-P"]
    assert [row[0] for row in rows[0].rows] == [5, 4, 3, 2, 1] and rows[0].rows[0][-1] == ledger.head[:12]
    assert len(section.figures[0].data) == 20


def test_the_price_of_a_plan_is_scored_and_says_that_no_run_was_behind_it(tmp_path, empty, capsys):
    parts = {"kernels": 0.06, "between": 0.03, "messages": 0.01}
    append(empty, predicted(100, 2, mesh="data=2", model="plan-1", regions=parts))
    for ms in (104, 105):
        write_steps(tmp_path / f"runs/{ms}", [ms], size=2, ledger=empty)
    own = scored(empty, tmp_path / "runs")
    assert own.targets["sources"].tolist() == [0]
    (section,) = predict_sections(Overview(load([tmp_path / "runs"]), ledger=read_ledger(empty)))
    assert "; no run was behind the prediction." in section.intro
    tables = dict(section.tables)
    assert "Regions that differ most" not in tables
    found = tables["Predicted parts, which the runs do not measure"].rows
    assert [row[1:] for row in found] == [("kernels", "60"), ("between", "30"), ("messages", "10")]
    assert call("score", empty, tmp_path / "runs") == 0
    text = capsys.readouterr().out
    assert "no run was behind the prediction" in text and "coupled, 2 ranks (data=2)" in text
    source = write_steps(tmp_path / "source", [300])
    append(empty, predicted(250, 1, sources=[source]))
    write_steps(tmp_path / "runs/one", [260, 261], ledger=empty)
    both = scored(empty, tmp_path / "runs", source)
    assert both.targets["sources"].tolist() == [0, 1]
    assert "; no run was behind the prediction of 1 of 2 targets" in sentences(both)[0]
    assert len(region_tables(both)) == 2


def test_a_ledger_without_rows_says_so_in_the_report(tmp_path, empty):
    run = write_steps(tmp_path / "r", [10], ledger=empty)
    (section,) = predict_sections(Overview(load([run]), ledger=read_ledger(empty)))
    assert "has no rows" in section.nothing and not section.figures


def test_prices_of_guarantees_are_scored_beside_their_floor(study, capsys):
    own = scored(study, study.parent)
    (price,) = own.prices.to_dict("records")
    plain, strict = (own.samples[own.samples["row"] == row]["seconds"].to_numpy() for row in (2, 5))
    assert (price["guarantee"], price["weakest"], price["ranks"]) == ("layout", "none", 2)
    assert (price["row"], price["weakest_row"], price["predicted"]) == (5, 2, pytest.approx(2.0))
    took = np.median(strict) / np.median(plain)
    assert price["measured"] == pytest.approx(took) and price["ratio"] == pytest.approx(took / 2)
    assert price["error"] == pytest.approx(np.expm1(abs(np.log(took / 2))))
    assert 0 < price["floor"] < 0.05
    (error,) = own.price_errors.to_dict("records")
    assert (error["targets"], error["verdict"]) == (1, "scored")
    assert error["error"] == pytest.approx(price["error"]) and error["floor"] == pytest.approx(price["floor"])
    assert call("score", study, study.parent) == 0
    assert "price of layout, wall clock: scored, " in (out := capsys.readouterr().out)
    assert "Prices, predicted and measured" in out
    assert scored(study, study.parent / "layout-0").prices.empty


def test_a_price_without_repeats_has_no_floor():
    assert math.isnan(floor_of_ratios([1.0], [1.0, 2.0]))
    assert floor_of_ratios([1.0, 1.1], [2.0, 2.0]) == pytest.approx(0.1)


def test_figures_name_methods_apart_where_an_app_has_several():
    rows = [("solver", "a" * 9, "none"), ("coupled", "b" * 9, "none"), ("coupled", "c" * 9, "layout"),
            ("coupled", "d" * 9, "layout"), ("coupled", "b" * 9, "none")]  # fmt: skip
    names = series_of(pd.DataFrame(rows, columns=["app", "method", "guarantee"]))
    assert list(names.values()) == [
        "solver", "coupled, none", "coupled, layout, method cccccc", "coupled, layout, method dddddd"
    ]  # fmt: skip


def test_tables_name_targets_by_their_guarantee_before_the_hash_of_their_method():
    rows = [(1, "none", "a" * 9), (2, "layout", "b" * 9), (3, "run", "c" * 9), (4, "run", "d" * 9)]
    table = pd.DataFrame(rows, columns=["row", "guarantee", "method"])
    table = table.assign(app="coupled", ranks=2, mesh="", clock="wall", problem="p" * 9)
    assert list(names(table).values()) == [
        f"coupled, 2 ranks, {each}" for each in ("none", "layout", "run, method cccccc", "run, method dddddd")
    ]
    assert names(table[:1]) == {1: "coupled, 2 ranks"}


def test_a_prediction_that_is_far_off_is_told_by_its_factor(tmp_path):
    ledger = write_ledger(tmp_path / "ledger.jsonl", predicted(30))
    for i in range(3):
        write_steps(tmp_path / "runs" / f"r{i}", [93 + i], ledger=ledger)
    (section,) = predict_sections(Overview(load([tmp_path / "runs"]), ledger=read_ledger(ledger)))
    assert "missed: runs took 3.1 times as long as predicted" in section.intro
    assert "0 of 3 within the 80 % interval" in section.intro
