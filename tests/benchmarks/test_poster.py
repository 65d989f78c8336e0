"""Published claims beside the accuracies of runs."""

import pandas as pd
import pytest

from analysis.load.frames import load
from analysis.studies.learning.paired import Difference
from analysis.studies.learning.prices import END, Basis
from analysis.studies.learning.runs import trainings
from benchmarks.apps.poster import DOES_NOT, HOLDS, UNTOLD, claims, judged, poster, sentence, tables
from tests.analysis.training_runs import study_of


def interval(low, high, pairs=5):
    return Difference(pairs, (low + high) / 2, low, high, 0.01, 0.01)


@pytest.mark.parametrize("ours, verdict", [
    (interval(-0.03, -0.01), HOLDS), (interval(-0.005, -0.001), HOLDS), (interval(0.001, 0.02), DOES_NOT),
    (interval(-0.01, 0.01), DOES_NOT), (interval(-0.03, 0.01), UNTOLD), (interval(-0.03, -0.01, 2), UNTOLD),
])  # fmt: skip
def test_a_claim_holds_does_not_or_cannot_be_told(ours, verdict):
    assert judged(ours, -0.017, [])[0] == verdict
    assert judged(ours, -0.017, ["fp8"]) == (UNTOLD, "no complete run of fp8")


def test_the_direction_may_hold_where_the_size_does_not():
    assert judged(interval(-0.03, -0.01), -0.017, []) == (HOLDS, "")
    assert judged(interval(-0.005, -0.001), -0.017, []) == (HOLDS, "in direction, not in size")


def only(frame, **where):
    """The one row of `frame` that has these values."""
    for key, value in where.items():
        frame = frame[frame[key] == value]
    (row,) = frame.to_dict("records")
    return row


def test_each_claim_is_compared_with_the_lines_of_that_name(tmp_path):
    study_of(tmp_path)
    compared = poster(trainings(load([tmp_path])))
    row = only(compared, claim="Table-1 below float", basis="rate 0.05", measure=END)
    assert (row["line"], row["against"], row["verdict"]) == ("table:n=1", "as is", HOLDS)
    assert row["published_difference"] == pytest.approx(-0.135) and row["pairs"] == 3
    row = only(compared, claim="AdaPrec above float", basis="rate 0.05", measure=END)
    assert row["difference"] == pytest.approx(0.01) and row["verdict"] == HOLDS
    row = only(compared, claim="Fastest below float")  # once, since none ran
    assert (row["verdict"], row["why"]) == (UNTOLD, "no complete run of Fastest")
    assert only(compared, claim="fp8 below float", basis="rate 0.05", measure=END)["verdict"] == DOES_NOT
    ((title, table),) = tables(compared)
    assert title == "Claims of the poster: training" and len(table.rows) == len(compared)
    assert sentence(compared).startswith(f"Of {len(compared)} comparisons with published claims: ")


def test_another_table_is_not_taken_for_table_1():
    accuracy = pd.Series([0.5, 0.6, 0.7])
    basis = Basis("f", "rate 1", END, {"as is": accuracy, "table:n=10": accuracy}, {})
    assert claims([basis], {("f", "as is"): "as is", ("f", "table:n=10"): "table:n=10"}).empty
    basis = Basis("f", "rate 1", END, {"as is": accuracy, "x": accuracy}, {})
    assert len(claims([basis], {("f", "as is"): "as is", ("f", "x"): "table:n=1,scale=match"})) > 0
