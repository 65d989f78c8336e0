"""Decisions of runs, compared pair by pair: shares by factor, first ones, margins, intervals."""

import numpy as np
import pytest
from scipy.stats import binomtest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.overview import Overview
from analysis.studies.decisions.compare import interval
from analysis.studies.decisions.runs import GUARANTEE, METHOD, NOTHING, ORDER, RANKS, SEVERAL, factor_of
from analysis.studies.decisions.study import STUDY
from tests.analysis.synthetic import write_run

STEPS = 3


def run(out, size=2, decided=(), **more):
    """A run with these decisions, (step, name, block, outcome, margin)."""

    def made(repeat, step):
        return [row[1:] for row in decided if row[0] == step]

    return write_run(out, size, steps=STEPS, decisions=made, **more)


def classes(*outcomes, step=2, margins=(0.1, 0.2, 0.3)):
    return [(step, "class", block, outcome, margins[block]) for block, outcome in enumerate(outcomes)]


def known(*paths):
    return STUDY.read(Overview(load(paths)), None)


def only(rows, **where):
    for key, value in where.items():
        rows = rows[rows[key] == value]
    (row,) = rows.to_dict("records")
    return row


def test_pairs_are_told_apart_by_what_differs_between_the_runs(tmp_path):
    run(tmp_path / "a", 2, classes(1, 1, 1))
    run(tmp_path / "b", 2, classes(1, 1, 2))
    run(tmp_path / "c", 3, classes(1, 2, 2))
    run(tmp_path / "d", 2, classes(1, 1, 1), ordering="ring")
    run(tmp_path / "e", 2, classes(1, 1, 1), ordering="tree", guarantee="layout")
    rows = known(tmp_path).rows
    row = only(rows, factor=NOTHING)  # a, b
    assert (row["runs"], row["pairs"], row["differing"], row["changed_most"]) == (2, 1, 1, 1)
    row = only(rows, factor=RANKS)  # a, b against c
    assert (row["runs"], row["pairs"], row["differing"], row["changed_most"]) == (3, 2, 2, 2)
    assert row["changed_mean"] == pytest.approx((2 + 1) / 2 / 3)
    assert only(rows, factor=ORDER)["differing"] == 1  # a, b against d
    assert only(rows, factor=GUARANTEE)["pairs"] == 3  # a, b, d against e, whose guarantee chose its order
    assert only(rows, factor=SEVERAL)["pairs"] == 2  # c against d, e
    assert (rows["decisions"] == 3).all() and rows["pairs"].sum() == 10


@pytest.mark.parametrize("differing, factor", [
    (set(), NOTHING), ({RANKS}, RANKS), ({GUARANTEE, ORDER, METHOD}, GUARANTEE), ({ORDER, METHOD}, SEVERAL),
    ({GUARANTEE, ORDER, RANKS}, SEVERAL),
])  # fmt: skip
def test_the_factor_of_a_pair(differing, factor):
    assert factor_of(differing) == factor


def test_the_first_decision_that_differs_is_the_one_of_the_earliest_step(tmp_path):
    run(tmp_path / "a", decided=[*classes(1, 1, step=2), (1, "sweeps", -1, 5, 0.5)])
    run(tmp_path / "b", decided=[*classes(1, 2, step=2), (1, "sweeps", -1, 5, 0.5)])
    run(tmp_path / "c", decided=[*classes(3, 1, step=2), (1, "sweeps", -1, 6, 0.25)])
    first = known(tmp_path).first
    row = only(first, name="class")
    assert (row["step"], row["block"], {row["outcome_a"], row["outcome_b"]}) == (2, 0, {1.0, 3.0})
    assert row["margin_a"] == row["margin_b"] == 0.1
    row = only(first, name="sweeps")
    assert (row["step"], row["block"], row["outcome_b"], row["margin_b"]) == (1, -1, 6.0, 0.25)


def test_margins_of_decisions_that_another_run_made_differently(tmp_path):
    run(tmp_path / "a", decided=classes(1, 1, 1, margins=(0.01, 0.02, np.nan)))
    run(tmp_path / "b", decided=classes(2, 1, 2, margins=(0.03, 0.5, np.nan)))
    row = only(known(tmp_path).rows)
    assert row["margin_changed"] == 0.03 and row["margin"] == pytest.approx(0.025)


def test_a_decision_that_only_one_run_made_differs(tmp_path):
    run(tmp_path / "a", decided=[(1, "crossed", -1, 1, 0.5)])
    run(tmp_path / "b", decided=[(1, "crossed", -1, 1, 0.5), (2, "crossed", -1, 1, 0.5)])
    found = known(tmp_path)
    assert (only(found.rows)["differing"], only(found.rows)["decisions"]) == (1, 2)
    row = only(found.first)
    assert row["step"] == 2 and np.isnan([row["outcome_a"], row["outcome_b"]]).sum() == 1
    assert "none" in str(dict(STUDY.tables(found))["The first decisions that differ"].rows)


def test_a_decision_at_another_step_is_the_same_decision(tmp_path):
    run(tmp_path / "a", decided=[(1, "iterations", -1, 8, 0.5)])
    run(tmp_path / "b", decided=[(2, "iterations", -1, 8, 0.5)])
    assert only(known(tmp_path).rows)["differing"] == 0


def test_problems_are_counted_once_each(tmp_path):
    for problem in range(4):
        for k in range(3):
            run(tmp_path / f"p{problem}-{k}", decided=classes(1, k * (problem == 2)), problem=f"p{problem}",
                problem_options={"grid.nx": problem})  # fmt: skip
    row = only(known(tmp_path).over)
    assert (row["problems"], row["differing"], row["share"]) == (4, 1, 0.25)
    test = binomtest(1, 4).proportion_ci()
    assert (row["low"], row["high"]) == pytest.approx((test.low, test.high))


@pytest.mark.parametrize("hits, trials", [(0, 1), (0, 7), (3, 7), (7, 7), (1, 20)])
def test_intervals_are_those_of_clopper_and_pearson(hits, trials):
    test = binomtest(hits, trials).proportion_ci()
    assert interval(hits / trials, trials) == pytest.approx((test.low, test.high))


def test_nothing_can_be_told_of_no_trial():
    assert interval(0.0, 0) == (0.0, 1.0)


def test_runs_without_decisions_are_refused_in_a_sentence(tmp_path, capsys):
    write_run(tmp_path / "a", 1, steps=1)
    assert main(["decisions", str(tmp_path / "a")]) == 2
    assert "decisions, as `solver` and `clusters` do" in capsys.readouterr().err


def test_sentences_say_how_many_pairs_decide_differently(tmp_path, capsys):
    for k in range(3):
        run(tmp_path / str(k), decided=classes(1, int(k == 2)))
    assert main(["decisions", str(tmp_path)]) == 0
    assert "class: 2 pairs of 3 that repeat each other decide differently (67 %)." in capsys.readouterr().out
