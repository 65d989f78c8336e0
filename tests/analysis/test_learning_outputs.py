"""Effects of the orders of training and inference on weights and outputs, as the analysis reports them."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.report.build import build
from analysis.studies.learning.outputs import outputs
from analysis.studies.learning.runs import trainings
from kernels.bits import bound
from tests.analysis.training_runs import write_training

ULP = 2.0**-23


def write(root, name, orders, order_seed, weights=1.0, output=-2.0, prediction=3, *, places=(0, 1), **more):
    """A run whose last step has one weight, two outputs and two predictions, of which the first are given."""
    made = {"weights": [weights], "outputs": [output, -1.0], "predictions": [prediction, 4]}
    values = [(10, "weights_sample", 0, weights)]
    values += [
        (10, name, place, made[of][place])
        for of, name in (("outputs", "outputs"), ("predictions", "decision:class"))
        for place in places
    ]
    aggregates = dict(zip(("model.aggregate", "model.aggregate_inference"), orders, strict=True))
    return write_training(
        root / name, [0.5], values=values, method={**aggregates, "seeds.order": order_seed},
        prints=[(10, name, 0, np.array(array)) for name, array in made.items()], **more,
    )  # fmt: skip


D, ND = "sorted", "emulated"


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("outputs")
    for seed in (1, 2, 3):
        near = ULP * seed
        write(root, f"fixed-{seed}", (D, D), seed)
        write(root, f"answers-{seed}", (D, ND), seed, output=-2.0 * (1 + near))
        write(root, f"learns-{seed}", (ND, D), seed, 1.0 + near, -2.0 * (1 + near))
        write(root, f"both-{seed}", (ND, ND), seed, 1.0 + near, -2.0 * (1 + 2 * near), 5 if seed == 3 else 3)
    write(root, "both-again", (ND, ND), 1, 1.0 + ULP, -2.0 * (1 + 2 * ULP))
    return root


@pytest.fixture(scope="module")
def rows(root):
    frame = outputs(trainings(load([root])))
    return {(row.training, row.inference, row.what): row for row in frame.itertuples(index=False)}


def test_a_row_for_each_pair_of_orders_fixed_ones_first(rows):
    assert [key[:2] for key in rows][::3] == [(D, D), (D, ND), (ND, D), (ND, ND)]
    assert [key[2] for key in rows][:3] == ["weights", "outputs", "predictions"]
    for (training, inference, _), row in rows.items():
        assert (row.training_fixed, row.inference_fixed) == (training == D, inference == D)


def test_equal_bits_are_counted_and_bound_the_probability_of_a_difference(rows):
    for key in ((D, D, "weights"), (D, D, "outputs"), (D, ND, "weights"), (ND, D, "predictions")):
        row = rows[key]
        assert (row.runs, row.distinct, row.pairs, row.differing) == (3, 1, 2, 0)
        assert row.v_c == 0.0 and row.bound == bound(3)
    assert rows[D, D, "outputs"].v_ermv_most == 0.0


def test_orders_of_inference_change_outputs_alone_and_those_of_training_both(rows):
    assert rows[D, ND, "outputs"].distinct == 3 and rows[ND, D, "weights"].distinct == 3
    row = rows[D, ND, "outputs"]
    assert row.differing == 2 and row.v_c == 0.5 and np.isnan(row.bound)
    terms = [
        (k - 1) * ULP / (1 + ULP) / 2 for k in (2, 3)
    ]  # one output of two, against the first run of the row
    assert (row.v_ermv_least, row.v_ermv_most) == pytest.approx(terms, rel=1e-12)


def test_seeds_that_draw_the_same_orders_are_one_trial(rows):
    assert rows[ND, ND, "outputs"].runs == 3


def test_runs_are_compared_with_one_whose_orders_are_fixed(rows):
    row = rows[ND, ND, "outputs"]
    assert row.reference == "sorted, sorted" and row.reference_pairs == 3
    assert row.reference_v_ermv == 2 * ULP and row.reference_v_c == 0.5
    assert rows[D, D, "outputs"].reference == "" and np.isnan(rows[D, D, "outputs"].reference_v_c)


def test_predictions_that_change_are_counted_and_have_no_relative_difference(rows):
    row = rows[ND, ND, "predictions"]
    assert (row.distinct, row.differing, row.v_c) == (2, 1, 0.25) and np.isnan(row.v_ermv)


def test_settings_are_compared_each_in_itself(tmp_path):
    for seed in (1, 2):
        for init in (1, 2):
            write(tmp_path, f"{init}-{seed}", (D, ND), seed, 1.0 * init, -2.0 * init * (1 + ULP * seed),
                  seeds={"init": init, "data": 1, "dropout": 1})  # fmt: skip
    frame = outputs(trainings(load([tmp_path]))).set_index("what")
    assert frame.loc["weights", ["settings", "runs", "distinct", "pairs"]].tolist() == [2, 4, 2, 2]
    assert frame.loc["weights", "v_c"] == 0.0 and frame.loc["outputs", "v_ermv_most"] < ULP
    assert frame["reference"].tolist() == [""] * 3


def test_a_sample_and_all_of_the_outputs_are_compared_where_both_recorded(tmp_path):
    write(tmp_path, "all", (D, ND), 1)
    write(tmp_path, "sample", (D, ND), 2, output=-3.0, places=(0,))
    row = outputs(trainings(load([tmp_path]))).set_index("what").loc["outputs"]
    assert row["v_c"] == 1.0 and row["v_ermv"] == 0.5


def test_runs_by_chance_are_trials_whatever_their_seeds(tmp_path):
    for name in "ab":
        write(tmp_path, name, ("atomic", "atomic"), 1)
    row = outputs(trainings(load([tmp_path]))).iloc[0]
    assert (row["runs"], row["distinct"]) == (2, 1) and row["bound"] == bound(2)


def test_runs_that_recorded_other_places_are_told_apart_by_their_hashes_alone(tmp_path):
    write(tmp_path, "a", (D, ND), 1, places=(0,))
    write(tmp_path, "b", (D, ND), 2, output=-3.0, places=(1,))
    row = outputs(trainings(load([tmp_path]))).set_index("what").loc["outputs"]
    assert (
        (row["pairs"], row["differing"]) == (1, 1) and np.isnan(row["v_c"]) and np.isnan(row["v_ermv_most"])
    )


def test_one_run_shows_nothing(tmp_path):
    write(tmp_path, "a", (D, ND), 1)
    row = outputs(trainings(load([tmp_path]))).iloc[0]
    assert row["pairs"] == 0 and np.isnan(row["bound"]) and np.isnan(row["v_ermv"])


@pytest.mark.usefixtures("undrawn")
def test_the_command_and_the_report_have_the_matrix_and_say_that_orders_were_drawn(root, capsys):
    assert main(["learning", str(root)]) == 0
    printed = capsys.readouterr().out
    assert "Training and inference, deterministic (D) or not (ND)" in printed
    assert "D, sorted" in printed and "ND, emulated" in printed and "drawn from seeds" in printed
    page = build(load([root])).html
    assert (
        "Training: outputs by orders of training and of inference" in page
        and "of a GPU, drawn from seeds" in page
    )
