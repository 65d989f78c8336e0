"""Runs that learn: lines, their time and bytes, wires compared by seeds, decisions, variance."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy.stats import nct, t, ttest_rel

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.power import POWER, least_difference
from analysis.report.build import build
from analysis.studies.learning.figures import accuracy_figures, band, decision_figures, price_figures
from analysis.studies.learning.paired import DIFFERS, TOO_FEW, UNSEEN, difference
from analysis.studies.learning.prices import BEST, END, EQUAL_TIME
from analysis.studies.learning.runs import trainings
from analysis.studies.learning.study import STUDY
from analysis.studies.learning.tables import known_of, sentences
from tests.analysis.synthetic import write_run
from tests.analysis.test_report import SECTIONS, Page
from tests.analysis.training_runs import study_of, write_training

TRAINING = [
    "Training: accuracy and prices of wires", "Training: choices of wires", "Training: where the variance is",
]  # fmt: skip


def made_of(*paths):
    return known_of(trainings(load(paths)))


def only(frame, **where):
    """The one row of `frame` that has these values."""
    for key, value in where.items():
        frame = frame[frame[key] == value]
    (row,) = frame.to_dict("records")
    return row


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("training")
    study_of(root)
    return root


@pytest.fixture(scope="module")
def results(root):
    return made_of(root)


# ---- lines, time, bytes


def test_seeds_and_rates_make_no_family_and_no_line(results):
    runs = results.recorded.runs
    assert runs["family"].unique().tolist() == ["training"]
    assert set(runs["line"]) == {"as is", "fp8", "table:n=1", "adaprec"} == set(runs["wire"])
    assert set(runs["seeds"]) == {f"init={k}, data={k}, dropout={k}" for k in (1, 2, 3)}
    assert set(runs["rate"]) == {0.02, 0.05}


def test_another_problem_is_another_family_and_other_ranks_another_line(tmp_path):
    write_training(tmp_path / "a", [0.5])
    write_training(tmp_path / "b", [0.5], problem={"model.name": "cnn"})
    write_training(tmp_path / "c", [0.5], size=3)
    write_training(tmp_path / "d", [0.5], method={"run.fault": ["bitflip@step=1,block=0"]})
    runs = trainings(load([tmp_path])).runs
    assert runs["family"].nunique() == 2 and len(runs) == 3  # none with a fault
    (mlp,) = runs.loc[runs["run"].str.endswith("a"), "family"]
    lines = runs.loc[runs["family"] == mlp, "line"].tolist()
    assert len(lines) == 2 and all(line.startswith("as is, ") for line in lines)
    assert any("2 ranks" in line for line in lines) and any("3 ranks" in line for line in lines)


def test_the_seed_of_the_run_is_the_seed_where_there_are_no_others(tmp_path):
    write_training(tmp_path / "a", [0.5], problem_options={"run.seed": 7, "net.width": 3}, seed=7)
    assert trainings(load([tmp_path])).runs["seeds"].tolist() == ["seed=7"]


def test_time_is_that_of_the_slowest_rank_without_evaluations_and_bytes_are_of_a_rank_and_step(tmp_path):
    write_training(tmp_path / "a", [0.1, 0.4], every=5, ms=3.0, nbytes=640)
    known = trainings(load([tmp_path]))
    assert known.curves[["step", "accuracy"]].to_numpy().tolist() == [[5, 0.1], [10, 0.4]]
    assert np.allclose(known.curves["seconds"], [0.015, 0.030], rtol=0, atol=1e-9)
    (row,) = known.runs.to_dict("records")
    assert (row["accuracy"], row["loss"], row["steps"], row["bytes"]) == (0.4, 1.0, 10, 640.0)


def test_tensors_that_travel_as_they_are_say_nothing_of_a_wire(tmp_path):
    quality = [(10, "wire_error", block, error) for block, error in enumerate((0.0, 0.06, 0.0, 0.04))]
    quality += [(10, "wire_length", block, length) for block, length in enumerate((1.0, 1.2, 1.0, 1.4))]
    write_training(tmp_path / "a", [0.5], wire="fp8", values=quality)
    write_training(tmp_path / "b", [0.5], wire="float32", values=[(10, "wire_error", 0, 0.0)])
    runs = trainings(load([tmp_path])).runs.set_index("wire")
    assert runs.at["fp8", "wire_error"] == pytest.approx(0.05)
    assert runs.at["fp8", "wire_length"] == pytest.approx(1.3)
    assert runs.at["float32", "wire_error"] == 0.0 and np.isnan(runs.at["float32", "wire_cosine"])


def test_a_run_without_times_has_accuracies_and_no_bytes(tmp_path):
    for seed in (1, 2, 3):
        write_training(tmp_path / f"a{seed}", [0.1, 0.4], seed, timed=False)
    results = made_of(tmp_path)
    assert results.prices["accuracy"].tolist() == [0.4] and results.prices["bytes"].isna().all()
    assert any("no times" in note for note in results.notes)
    assert [figure.name for figure in accuracy_figures(results)] == ["training-steps-0"]
    assert price_figures(results) == []


# ---- differences


def test_a_difference_is_the_paired_t_test_over_seeds_that_both_have():
    a = pd.Series({"s1": 0.80, "s2": 0.81, "s3": 0.84, "s4": 0.79, "only a": 0.1})
    b = pd.Series({"s4": 0.78, "s3": 0.82, "s1": 0.79, "s2": 0.81, "only b": 0.9})
    d = difference(a, b)
    expected = ttest_rel(a[["s1", "s2", "s3", "s4"]], b[["s1", "s2", "s3", "s4"]])
    interval = expected.confidence_interval()
    assert d.pairs == 4 and np.allclose([d.low, d.high], [interval.low, interval.high], rtol=1e-12)
    assert d.verdict == UNSEEN and expected.pvalue > 0.05


@pytest.mark.parametrize(
    "values, verdict",
    [([], TOO_FEW), ([0.1], TOO_FEW), ([0.1, 0.1], TOO_FEW), ([0.1, 0.1, 0.1], DIFFERS), ([0.0] * 3, UNSEEN),
     ([0.1, 0.11, 0.09], DIFFERS), ([0.1, -0.1, 0.05], UNSEEN), ([0.1, np.nan, 0.1], TOO_FEW)],
)  # fmt: skip
def test_a_verdict_needs_three_seeds_and_an_interval_beside_0(values, verdict):
    a = pd.Series(values, dtype=float)
    assert difference(a, a * 0).verdict == verdict


def test_the_least_difference_is_that_of_tables_of_power():
    # d_z of a paired test, power 80 %, 5 % two-sided.
    assert least_difference(1.0, 10) == pytest.approx(0.996, abs=5e-4)
    assert least_difference(2.0, 10) == pytest.approx(2 * least_difference(1.0, 10))
    for n in (2, 3, 5, 30):
        seen = nct.sf(t.ppf(0.975, n - 1), n - 1, least_difference(1.0, n) * np.sqrt(n))
        assert seen == pytest.approx(POWER, abs=1e-9)
    assert np.isnan(least_difference(1.0, 1)) and np.isnan(least_difference(np.nan, 5))


def test_drawn_differences_of_the_least_size_are_seen_in_four_of_five_samples():
    n, trials = 5, 600
    drawn = np.random.default_rng(1).normal(least_difference(1.0, n), 1.0, (trials, n))
    seen = [difference(pd.Series(x), pd.Series(x * 0)).verdict == DIFFERS for x in drawn]
    assert abs(np.mean(seen) - POWER) < 4 * np.sqrt(POWER * (1 - POWER) / trials)


# ---- prices


def test_prices_are_ratios_to_gradients_as_they_are_at_the_same_rate(results):
    row = only(results.prices, line="fp8", rate=0.05)
    assert (row["seeds"], row["runs"], row["bytes"], row["bytes_ratio"]) == (3, 3, 250.0, 0.25)
    assert row["seconds_ratio"] == pytest.approx(0.5) and row["seconds_per_step"] == pytest.approx(1e-3)
    assert (row["wire_error"], row["wire_cosine"], row["wire_length"]) == (0.05, 0.99, 1.01)
    assert row["accuracy"] == pytest.approx(0.7 + 0.05 + 0.004 - 0.001 + 0.002)
    assert row["best"] and row["edge"] and not only(results.prices, line="fp8", rate=0.02)["best"]


def test_equal_time_is_when_the_shortest_run_ended(results):
    # Of 30 steps of 1 ms; `as is`, with 2 ms a step, was evaluated after 10 of its steps, and not yet after 20.
    assert only(results.prices, line="fp8", rate=0.05)["in_time"] == pytest.approx(0.755)
    assert only(results.prices, line="as is", rate=0.05)["in_time"] == pytest.approx(0.304)


def test_wires_are_compared_at_each_rate_and_each_at_its_best(results):
    row = only(results.comparisons, line="fp8", basis="rate 0.05", measure=END)
    # Differences are 0, 0.001, 0.002: mean 0.001, sd 0.001.
    half = t.ppf(0.975, 2) * 0.001 / np.sqrt(3)
    assert row["pairs"] == 3 and row["difference"] == pytest.approx(0.001)
    assert [row["difference_low"], row["difference_high"]] == pytest.approx([0.001 - half, 0.001 + half])
    assert row["verdict"] == UNSEEN and row["least"] == pytest.approx(least_difference(0.001, 3))
    assert only(results.comparisons, line="table:n=1", basis=BEST, measure=END)["verdict"] == DIFFERS
    assert only(results.comparisons, line="fp8", basis=BEST, measure=EQUAL_TIME)["difference"] > 0.4
    assert not (results.comparisons["line"] == "as is").any()


def test_a_wire_is_compared_at_its_best_rate_where_that_is_another(tmp_path):
    for seed in (1, 2, 3):
        for rate, end in ((0.01, 0.5), (0.1, 0.9)):
            small = {"size": 1, "every": 1}
            write_training(tmp_path / f"a{seed}{rate}", [end + seed / 100], seed, rate=rate, **small)
            write_training(tmp_path / f"b{seed}{rate}", [1.4 - end + seed / 100], seed, "sign", rate, **small)
    row = only(made_of(tmp_path).comparisons, line="sign", basis=BEST, measure=END)
    assert (row["rate"], row["against_rate"]) == (0.01, 0.1) and row["difference"] == pytest.approx(0.0)


def test_the_reference_has_the_same_ranks_where_there_is_one(tmp_path):
    for size in (1, 2):
        for wire in ("as is", "fp8"):
            write_training(tmp_path / f"{wire[0]}{size}", [0.5], 1, wire, size=size)
    rows = made_of(tmp_path).comparisons
    assert len(rows) == 4  # two lines over fp8, at the end and in equal time
    for row in rows.to_dict("records"):
        assert row["line"].rpartition(" on ")[2] == row["against"].rpartition(" on ")[2]


def test_without_gradients_as_they_are_nothing_is_compared(tmp_path):
    write_training(tmp_path / "a", [0.5], 1, "fp8")
    results = made_of(tmp_path)
    assert (
        results.comparisons.empty and results.prices["bytes_ratio"].isna().all() and sentences(results) == []
    )


def test_runs_that_ended_early_count_nowhere(tmp_path):
    write_training(tmp_path / "a", [0.5, 0.6], complete=False)
    write_training(tmp_path / "b", [0.5, 0.7], seed=2)
    results = made_of(tmp_path)
    assert results.prices["accuracy"].tolist() == [0.7] and results.prices["runs"].tolist() == [1]
    assert any("1 run left out: ended early" in note for note in results.notes)


def test_the_sentence_says_what_would_have_been_seen(results):
    told = " ".join(sentences(results))
    assert (
        "fp8 against as is, rate 0.05: no difference of accuracy seen (-0.15 to +0.35 points, 3 seeds); "
        in told
    )
    assert "0.33 points are detectable with power 80 %" in told
    assert "table:n=1 against as is, rate 0.05: accuracy lower by 19.80 points" in told


# ---- decisions


def test_a_decision_is_put_beside_what_came_of_it(tmp_path):
    loss = np.concatenate([np.full(10, 2.0), np.full(10, 1.5), np.full(10, 1.8)])
    chosen = [
        (0, "lgreco", 0, "fp8", 9.0), (10, "lgreco", 0, "sign", 4.0), (10, "lgreco", 1, "fp8", 6.0),
        (10, "lgreco", 2, "sign", np.nan), (20, "lgreco", 0, "sign", 1.0), (20, "time", -1, "on", 0.1),
    ]  # fmt: skip
    write_training(tmp_path / "a", [0.3, 0.5, 0.4], loss=loss, policy="lgreco", choices=chosen, ms=2.0)
    results = made_of(tmp_path)
    rows = results.decisions
    assert rows["step"].tolist() == [0, 10, 20] and rows["tensors"].tolist() == [1, 3, 1]
    assert rows["choice"].tolist() == ["fp8", "sign (2), fp8 (1)", "sign"] and not rows["trial"].any()
    assert rows["score"].tolist() == [9.0, 6.0, 1.0]
    assert rows["loss_before"].tolist() == [2.0, 2.0, 1.5] and rows["loss_after"].tolist() == [2.0, 1.5, 1.8]
    assert rows["accuracy_after"].tolist() == [0.3, 0.5, 0.4]
    assert rows["gained_per_s"].tolist() == pytest.approx([0.0, 0.5 / 0.020, -0.3 / 0.020])
    (told,) = results.summary.to_dict("records")
    assert (told["decisions"], told["known"], told["gained"]) == (3, 3, 1) and np.isnan(told["curve_error"])
    assert np.isnan(told["correlation"])


def test_an_expected_value_is_compared_with_the_last_measured_one_before_the_next_decision(tmp_path):
    stated = [
        (0, "sign", np.nan),
        (5, "fp8", 0.5),
        (10, "sign", 0.7),
        (20, "fp8", 0.9),
        (30, "nothing", np.nan),
    ]
    chosen = [(step, "wire", -1, wire, score) for step, wire, score in stated]
    measured = [(5, 9.0), (8, 0.3), (10, 0.4), (12, 0.65), (20, 0.75)]
    values = [(step, "held_out_loss", -1, value) for step, value in measured]
    write_training(
        tmp_path / "a", [0.3, 0.5, 0.4], loss=np.ones(30), policy="cautious", choices=chosen, values=values
    )
    rows = made_of(tmp_path).decisions.set_index("step")["curve_error"]
    assert rows[[5, 10]].tolist() == pytest.approx([0.1, -0.05]) and rows[[0, 20]].isna().all()


def tried(tmp_path, gains, outcomes):
    """A run that tries a wire for each of `gains` from one state and then goes on with each, by `outcomes`."""
    loss, chosen, now = [2.0], [], 2.0  # the first step, before anything is decided
    for k, gain in enumerate(gains):
        chosen += [(len(loss), "wire", -1, f"w{k}", np.nan), (len(loss), "begin", -1, "beginning", np.nan),
                   (len(loss), "end", -1, f"trial {k}", np.nan)]  # fmt: skip
        loss += [2.0 - gain] * 10
    for k, gain in enumerate(outcomes):
        begin = "beginning" if k == 0 else f"segment {k - 1}"
        chosen += [(len(loss), "wire", -1, f"w{k}", np.nan), (len(loss), "begin", -1, begin, np.nan),
                   (len(loss), "end", -1, f"segment {k}", np.nan)]  # fmt: skip
        now -= gain
        loss += [now] * 10
    write_training(
        tmp_path / "a", [0.5], loss=np.array(loss), every=len(loss), policy="adaprec", choices=chosen
    )
    return made_of(tmp_path)


def test_trials_are_told_from_decisions_and_losses_are_those_of_the_state_gone_on_from(tmp_path):
    results = tried(tmp_path, [0.1, 0.5], [0.2, 0.3])
    rows = results.decisions
    assert rows["trial"].tolist() == [True, True, False, False]
    assert rows["loss_before"].tolist() == pytest.approx(
        [2.0, 2.0, 2.0, 1.8]
    )  # not those of the trial before
    assert rows["loss_after"].tolist() == pytest.approx([1.9, 1.5, 1.8, 1.5])
    assert rows["tried_per_s"].isna().tolist() == [True, True, False, False]
    assert rows["tried_per_s"].tolist()[2:] == pytest.approx([0.1 / 0.02, 0.5 / 0.02])
    (told,) = results.summary.to_dict("records")
    assert (told["decisions"], told["trials"], told["choices"]) == (2, 2, "w0: 1; w1: 1")


@pytest.mark.parametrize("sign, expected", [(1, 1.0), (-1, -1.0)])
def test_trials_that_order_the_outcomes_correlate_with_them(tmp_path, sign, expected):
    gains = np.array([0.1, 0.3, 0.2, 0.6, 0.4, 0.5])
    results = tried(tmp_path, gains, 0.1 + 0.05 * sign * gains)
    (told,) = results.summary.to_dict("records")
    assert told["correlation"] == pytest.approx(expected) and told["gained"] == 6
    (figure,) = decision_figures(results)
    assert len(figure.data) == 6


# ---- variance


def crossed(root, effect):
    """Seeds of initial weights and of the data, and two wires, in all combinations, with accuracies by `effect`."""
    for init in (1, 2, 3):
        for data in (1, 2, 3):
            for wire in ("as is", "fp8"):
                seeds = {"data": data, "dropout": 0, "init": init}
                write_training(
                    root / f"{init}{data}{wire[0]}", [effect(init, data, wire)], 1, wire, seeds=seeds, size=1,
                    every=1,
                )  # fmt: skip


@pytest.mark.parametrize("factor, effect", [
    ("init", lambda init, data, wire: 0.8 + 0.01 * init),
    ("data", lambda init, data, wire: 0.8 + 0.01 * data),
    ("wire", lambda init, data, wire: 0.8 + 0.01 * (wire == "fp8")),
])  # fmt: skip
def test_the_variance_is_where_it_was_put(tmp_path, factor, effect):
    crossed(tmp_path, effect)
    table = made_of(tmp_path).variance
    row = only(table, factor=factor)
    levels = 2 if factor == "wire" else 3
    expected = np.var(0.01 * np.arange(levels), ddof=1)
    assert row["variance"] == pytest.approx(expected) and row["share"] == pytest.approx(1.0)
    others = table[(table["factor"] != factor) & table["variance"].notna()]
    assert np.allclose(others["variance"], 0.0, atol=1e-12)


def test_seeds_that_were_changed_together_are_not_separable(results):
    (table,) = [same for rate, same in results.variance.groupby("rate") if rate == 0.05]
    assert {"data", "dropout"} == set(table.loc[table["alias"] == "init", "factor"])
    assert "not separable from initial weights" in table["remark"].tolist()
    assert table["share"].sum() == pytest.approx(1.0)


def test_what_is_left_are_runs_that_differ_in_nothing_and_has_an_interval_where_these_are_many(tmp_path):
    drawn = np.random.default_rng(5).normal(0.8, 0.01, 12)
    for k, accuracy in enumerate(drawn):
        write_training(tmp_path / f"r{k}", [accuracy], ordering="arrival", size=1, every=1)
    row = only(made_of(tmp_path).variance, words="runs that agree in all these")
    assert row["variance"] == pytest.approx(np.var(drawn, ddof=1)) and row["df"] == 11
    assert 0 < row["variance_low"] < row["variance"] < row["variance_high"]


def test_numbers_that_are_none_are_left_out(tmp_path):
    for k, accuracy in enumerate((np.nan, np.inf, 0.5)):
        write_training(tmp_path / f"r{k}", [0.3, accuracy], k, rate=1e300 if k else 0.05)
    results = made_of(tmp_path)
    assert np.isnan(results.recorded.runs["rate"]).sum() == 2
    assert results.recorded.runs["accuracy"].isna().sum() == 2
    assert len(accuracy_figures(results)) == 2 and len(price_figures(results)) == 0


# ---- figures, report, command


def test_a_band_has_the_median_and_the_extremes_of_shared_steps_or_of_times_at_which_half_of_the_runs_train():
    rows = [(run, step, step / run, 0.1 * run + step / 100) for run in (1, 2, 3) for step in (10, 20, 30)]
    curves = pd.DataFrame(rows[:-1], columns=["run", "step", "seconds", "accuracy"]).assign(repeat=0)
    steps, times = band(curves, "step"), band(curves, "seconds")
    assert steps["step"].tolist() == [10, 20]
    assert steps[["least", "accuracy", "most"]].iloc[0].tolist() == pytest.approx([0.2, 0.3, 0.4])
    assert times["seconds"].tolist() == pytest.approx([5, 20 / 3, 10, 15])
    assert times[["least", "accuracy", "most"]].iloc[0].tolist() == pytest.approx([0.3, 0.375, 0.45])


def test_figures_show_every_line_and_every_run(results):
    time, steps = accuracy_figures(results)
    assert time.legend == steps.legend == tuple(enumerate(["as is", "fp8", "table:n=1", "adaprec"]))
    assert time.data.groupby("line").size().tolist() == [3] * 4
    (price,) = price_figures(results)
    assert len(price.data) == 12
    (decided,) = decision_figures(results)
    assert len(decided.data) == 12


def test_the_report_has_three_sections_more(root, results):
    html = build(load([run for run in root.iterdir() if not run.name.startswith("table")])).html
    Page(html)
    titles = [title for title in TRAINING if f"<h2>{title}</h2>" in html]
    assert titles == TRAINING
    own = html[html.index(f"<h2>{titles[0]}") : html.index("<h2>What limits these results")]
    text = re.sub("<[^>]*>", " ", own)
    assert "Prices of wires" in text and not re.search(r"\b(nan|None)\b", text, re.IGNORECASE)


@pytest.mark.usefixtures("undrawn")
def test_reports_of_other_runs_have_no_section_of_training(tmp_path):
    write_run(tmp_path / "a")
    html = build(load([tmp_path])).html
    assert not any(f"<h2>{title}</h2>" in html for title in TRAINING) and f"<h2>{SECTIONS[0]}</h2>" in html


@pytest.mark.usefixtures("undrawn")
def test_an_incomplete_run_alone_makes_a_report_and_an_answer(tmp_path, capsys):
    write_training(tmp_path / "a", [0.5, 0.6], complete=False)
    assert "No training is complete" in build(load([tmp_path])).html
    assert main(["learning", str(tmp_path)]) == 0
    capsys.readouterr()


def test_the_command_prints_and_writes_every_table(root, tmp_path, results, capsys):
    assert main(["learning", str(root), "--csv", str(tmp_path / "csv")]) == 0
    printed = capsys.readouterr().out
    assert "Prices of wires" in printed and "Accuracy compared at the end" in printed
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == {data.name for data in STUDY.data}
    read = pd.read_csv(tmp_path / "csv/comparisons.csv")
    assert read["difference"].tolist() == results.comparisons["difference"].tolist()


def test_runs_that_do_not_learn_are_refused(tmp_path, capsys):
    write_run(tmp_path / "a")
    assert main(["learning", str(tmp_path)]) == 2
    assert "accuracy and loss" in capsys.readouterr().err


def test_weights_are_compared_between_runs_that_differ_in_one_thing_alone(tmp_path):
    def run(name, init, order, first, last):
        sample = [(5, "weights_sample", 0, first), (5, "weights_sample", 1, 2.0), (10, "weights_sample", 0, last),
                  (10, "weights_sample", 1, 2.0)]  # fmt: skip
        seeds = {"init": init, "data": 1, "dropout": 1, "order": order}
        write_training(tmp_path / name, [0.5], seeds=seeds, values=sample)

    run("a", 1, 1, 1.0, 1.0)
    run("b", 1, 2, 1.0, 1.0 + 2.0**-20)
    run("c", 1, 3, 1.0, 1.0 + 2.0**-22)
    run("d", 2, 1, 3.0, 5.0)
    run("e", 2, 2, 9.0, 9.0)
    frame = known_of(trainings(load([tmp_path]))).apart.set_index(["factor", "step"])
    assert set(frame.index.get_level_values("factor")) == {"init", "order"}
    assert frame.loc[("order", 5), "v_ermv_least"] == 0.0 and frame.loc[("order", 10), "pairs"] == 3
    assert frame.loc[("order", 10), "v_ermv"] == 2.0**-21 and frame.loc[("order", 10), "v_c"] == 0.5
    assert frame.loc[("init", 10), "pairs"] == 2 and frame.loc[("init", 10), "v_ermv_least"] == 2.0
