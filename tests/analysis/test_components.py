"""Variance components: equal to the textbook where the design is balanced, unbiased where it is not, with intervals
that cover; what cannot be told apart is named."""

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.studies.components.bootstrap import bca, replicates
from analysis.studies.components.design import design
from analysis.studies.components.estimates import ALGORITHM, FEWEST, RUN_TO_RUN, components
from analysis.studies.components.figures import component_figures
from analysis.studies.components.henderson import estimate, rows_of
from analysis.studies.components.observations import LAUNCH, REPEAT, WALL, observations
from analysis.studies.components.tables import component_tables, notes, sentences
from tests.analysis.synthetic import flip_bit, write_run, write_timed


def fitted(codes, y):
    return estimate(
        rows_of(np.stack(codes, axis=1), np.asarray(y, float).reshape(len(codes[0]), -1))
    ).variance


def nested(a, b, c):
    """Codes of a levels with b levels in each and c repeats in these."""
    return np.repeat(np.arange(a), b * c), np.repeat(np.arange(a * b), c)


def test_two_groups_by_hand():
    """1, 3 and 5, 9: means 2 and 7 about 4.5; MS between 25, within (2 + 8) / 2 = 5; (25 - 5) / 2 = 10."""
    assert fitted([np.array([0, 0, 1, 1])], [1, 3, 5, 9]).ravel() == pytest.approx([10, 5])


def test_unequal_groups_by_hand():
    """1, 2, 3 and 8: SS within 2 with 2 df, between 3 * 1.5^2 + 4.5^2 = 27; n0 = 4 - (9 + 1) / 4 = 1.5 (Searle, Casella
    & McCulloch, section 3.6); (27 - 1) / 1.5."""
    assert fitted([np.array([0, 0, 0, 1])], [1, 2, 3, 8]).ravel() == pytest.approx([26 / 1.5, 1])


def test_an_estimate_may_be_below_zero():
    """1, 3 and 1, 3: nothing between, 2 within; (0 - 2) / 2."""
    assert fitted([np.array([0, 0, 1, 1])], [1, 3, 1, 3]).ravel() == pytest.approx([-1, 2])


def test_a_balanced_nested_design_has_the_estimators_of_the_analysis_of_variance():
    a, b, c = 5, 3, 4
    y = (
        np.random.default_rng(1).normal(size=(a, b, c))
        + np.arange(a)[:, None, None]
        + np.arange(b)[:, None] / 3
    )
    within = ((y - y.mean(2, keepdims=True)) ** 2).sum() / (a * b * (c - 1))
    middle = c * ((y.mean(2) - y.mean((1, 2))[:, None]) ** 2).sum() / (a * (b - 1))
    between = b * c * ((y.mean((1, 2)) - y.mean()) ** 2).sum() / (a - 1)
    expected = [(between - middle) / (b * c), (middle - within) / c, within]
    assert fitted(nested(a, b, c), y.ravel()).ravel() == pytest.approx(expected, rel=1e-10)


def test_a_balanced_crossed_design_has_them_too():
    a, b, c = 4, 6, 3
    y = (
        np.random.default_rng(2).normal(size=(a, b, c))
        + np.arange(a)[:, None, None]
        + np.sin(np.arange(b))[:, None]
    )
    rows, columns = y.mean((1, 2)), y.mean((0, 2))
    rest = ((y - rows[:, None, None] - columns[:, None] + y.mean()) ** 2).sum() / (a * b * c - a - b + 1)
    of_rows, of_columns = b * c * rows.var(ddof=1), a * c * columns.var(ddof=1)
    codes = np.repeat(np.arange(a), b * c), np.tile(np.repeat(np.arange(b), c), a)
    expected = [(of_rows - rest) / (b * c), (of_columns - rest) / (a * c), rest]
    assert fitted(codes, y.ravel()).ravel() == pytest.approx(expected, rel=1e-10)


def test_the_size_of_the_numbers_does_not_matter():
    codes, y = nested(4, 2, 3), np.random.default_rng(3).normal(size=24)
    assert fitted(codes, 1e8 + y).ravel() == pytest.approx(fitted(codes, y).ravel(), rel=1e-6)


def test_unbalanced_and_crossed_estimates_are_unbiased():
    """Means of 2000 draws within four standard errors of the truth."""
    rng = np.random.default_rng(4)
    launch = np.repeat(np.arange(24), rng.integers(1, 5, 24))
    allocation, node = rng.integers(0, 7, 24)[launch], rng.integers(0, 5, 24)[launch]
    y = sum(s * rng.normal(size=(count, 2000))[codes] for s, count, codes in (
        (1.0, 7, allocation), (0.7, 5, node), (0.5, 24, launch)
    )) + 0.3 * rng.normal(size=(len(launch), 2000)) + 5.0 * (launch % 2)[:, None]  # fmt: skip
    estimates = fitted([launch % 2, node, allocation, launch], y)[1:]
    error = estimates.std(axis=1) / np.sqrt(2000)
    assert (abs(estimates.mean(axis=1) - [0.49, 1.0, 0.25, 0.09]) < 4 * error).all()


def test_intervals_cover_nearly_as_often_as_they_say():
    """Known components, 12 allocations of 3 launches of 3 repeats, 60 data sets: nominally 95 %, and known to
    fall short of it with so few units (docs/how-to/components.md): 45 of 60 are far below what is measured."""
    rng = np.random.default_rng(5)
    codes = nested(12, 3, 3)
    y = (
        rng.normal(size=(12, 60))[codes[0]]
        + 0.7 * rng.normal(size=(36, 60))[codes[1]]
        + 0.5 * rng.normal(size=(108, 60))
    )
    rows = rows_of(np.stack(codes, axis=1), y)
    value = estimate(rows).variance
    drawn = replicates(rows, rows.codes[:, 0], np.zeros(36, int), lambda variance: variance, 0, 399)
    low, high = bca(value, *drawn, corrected=value > 0)
    truth = np.array([1.0, 0.49, 0.25])[:, None]
    covered = ((low <= truth) & (truth <= high)).mean(axis=1)
    assert (covered >= [0.75, 0.82, 0.82]).all() and (low < high).all()


def levels(**columns):
    frame = pd.DataFrame({name: list(map(str, column)) for name, column in columns.items()})
    for name in ("allocation", "node", "launch"):
        frame[name] = frame.get(name, "one")
    return frame


def test_the_outer_factor_enters_before_what_lies_in_it():
    inner, outer = np.repeat(range(4), 4), np.repeat(range(2), 8)
    assert design(levels(allocation=inner, node=outer, launch=np.repeat(range(8), 2)), ()).factors == [
        "node", "allocation", "launch",
    ]  # fmt: skip
    assert design(levels(allocation=outer, node=inner), ()).factors == ["allocation", "node"]


def test_what_cannot_be_told_apart_is_named():
    """Each allocation ran one ordering: what differs may be either."""
    frame = levels(
        ordering=np.repeat(["ring", "exact"], 6),
        allocation=np.repeat([1, 2], 6),
        launch=np.repeat(range(4), 3),
    )
    plan = design(frame, ("ordering",))
    assert plan.factors == ["ordering", "launch"] and plan.alias == {"allocation": "ordering"}
    assert plan.holds == {"ordering": ["allocation"]} and plan.constant == ["node"]


def test_a_factor_confounded_with_two_together_names_both():
    first, second = np.tile([0, 1], 8), np.tile([0, 0, 1, 1], 4)
    frame = levels(ordering=first, ranks=second, allocation=2 * first + second, launch=np.arange(16))
    plan = design(frame, ("ordering", "ranks"))
    assert set(plan.alias["allocation"].split(", ")) <= {"ordering", "ranks", "combination"}


def test_with_one_repeat_launch_and_repeat_are_one():
    plan = design(levels(allocation=np.repeat(range(3), 4), launch=range(12)), ())
    assert (
        plan.factors == ["allocation"] and plan.alias == {LAUNCH: REPEAT} and plan.holds == {REPEAT: [LAUNCH]}
    )


def timed(path, wall, **more):
    """A run of one rank and one step that takes `wall` seconds."""
    return write_timed(path, lambda rank, step: [("step", 1000 * wall, [])], size=1, **more)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    """10 allocations, 2 orderings in each, 2 launches of each: sd of log wall time 0.3 between allocations, 0.05
    between launches; arrival takes 1.5 times as long."""
    path, rng = tmp_path_factory.mktemp("campaign"), np.random.default_rng(6)
    for a, offset in enumerate(rng.normal(0, 0.3, 10)):
        for ordering in ("arrival", "ring"):
            for k in range(2):
                wall = np.exp(offset + rng.normal(0, 0.05) + (ordering == "arrival") * np.log(1.5))
                timed(path / f"{a}-{ordering}-{k}", wall, ordering=ordering, allocation_id=str(a))
    return load([path], processes=1)


def test_shares_of_a_campaign_with_known_variances(campaign):
    table = components(campaign, resamples=199)
    rows = table[table["outcome"] == WALL].set_index("factor")
    assert rows.loc["allocation", "kind"] == RUN_TO_RUN and rows.loc["ordering", "kind"] == ALGORITHM
    assert rows.loc["allocation", "share"] > 0.9
    assert rows.loc["allocation", "low"] <= 0.09 <= rows.loc["allocation", "high"]
    assert rows.loc["ordering", "variance"] == pytest.approx(np.log(1.5) ** 2 / 2, rel=0.3)
    assert rows.loc[REPEAT, "remark"] == "includes launch" and rows.loc["launch", "alias"] == REPEAT
    assert rows.loc["allocation", "drawn"] == "allocation" and rows.loc["allocation", "units"] == 10
    chance = rows[(rows["kind"] == RUN_TO_RUN) & rows["share"].notna()]
    assert chance["share"].sum() == pytest.approx(1)


def test_the_sentence_says_where_the_variance_is(campaign):
    (line,) = sentences(components(campaign, resamples=99))
    assert (
        line.startswith("coupled: of the run-to-run variance of wall time 9")
        and "is between allocations" in line
    )
    assert "change of ordering is" in line and line.endswith("of all variance.")


def test_the_same_seed_gives_the_same_intervals(campaign):
    pd.testing.assert_frame_equal(components(campaign, resamples=49), components(campaign, resamples=49))


def test_too_few_units_have_no_interval_and_the_reason(tmp_path):
    for k in range(FEWEST - 1):
        timed(tmp_path / f"r{k}", 1 + 0.1 * k, allocation_id="7")
    table = components(load([tmp_path]))
    row = table[table["factor"] == REPEAT].iloc[0]
    assert np.isnan(row["low"]) and f"{FEWEST - 1} launches" in row["refused"] and row["variance"] > 0
    assert any("no interval" in line for line in notes(table)) and any(
        "one allocation only" in line for line in notes(table)
    )


def test_equal_values_have_no_variance_and_a_bound(tmp_path):
    for name in "ab":
        write_run(tmp_path / name)
    table = components(load([tmp_path]))
    (row,) = table[table["outcome"] == "energy"].to_dict("records")
    assert np.isnan(row["variance"]) and row["remark"].startswith("no difference: 0 of 2 differ: p < 78 %")


def test_equal_bits_have_no_variance_from_run_to_run_however_different_the_algorithms(tmp_path):
    for ordering, changed in (("a", 0), ("b", 1), ("c", 2)):
        for i in range(3):
            change = (
                (lambda repeat, step, field, by=changed: flip_bit(field, 0, bit=40 + by)) if changed else None
            )
            write_run(
                tmp_path / f"{ordering}{i}", ordering=ordering, repeats=3, change=change, names=("u", "v")
            )
    frame = components(load([tmp_path]), resamples=99)
    energy = frame[(frame["outcome"] == "energy") & frame["variance"].notna()]
    chance = energy[energy["kind"] == RUN_TO_RUN]
    assert set(chance["factor"]) == {"launch", "repeat"}
    assert (chance["variance"] == 0).all() and chance["share"].isna().all() and not chance["negative"].any()
    assert energy[energy["factor"] == "ordering"]["share"].item() == 1.0
    line = next(line for line in sentences(frame) if "energy" in line)
    assert line.startswith(
        "coupled: energy has no run-to-run variance: equal bits in all runs of one algorithm; change of"
    )


def test_launches_that_are_equal_inside_an_algorithm_have_no_variance_and_others_have():
    rng = np.random.default_rng(2)
    codes = np.stack([np.repeat([0, 1], 16), np.repeat(np.arange(8), 4)], axis=1)
    y = np.where(codes[:, 0] == 0, 1.0, 1e6) + 0.0
    assert (estimate(rows_of(codes, y[:, None])).variance[1:] == 0).all()
    assert (estimate(rows_of(codes, (y + rng.normal(size=32))[:, None])).variance[2] > 0).all()


def test_numbers_that_are_not_finite_are_left_out_and_counted(tmp_path):
    def change(repeat, step, field):
        field[0, 0] = np.nan if repeat == 2 else repeat

    write_run(tmp_path / "r", repeats=4, change=change)
    table = components(load([tmp_path]))
    row = table[(table["outcome"] == "energy") & (table["factor"] == REPEAT)].iloc[0]
    assert row["observations"] == 3 and row["left_out"] == 1
    assert any("1 of 4 runs have no finite number" in line for line in notes(table))


def test_final_values_are_relative_to_their_median(tmp_path):
    write_run(tmp_path / "r", repeats=3, change=lambda repeat, step, field: field.__imul__(1 + repeat))
    (problem,) = observations(load([tmp_path]))
    assert (
        problem.outcomes["energy"].tolist() == pytest.approx([1 / 4 - 1, 0, 9 / 4 - 1])
        and problem.steps["energy"] == 5
    )


def test_one_run_says_that_two_are_needed(tmp_path, capsys):
    write_run(tmp_path / "r")
    assert main(["components", str(tmp_path)]) == 0
    assert "1 observation, 2 are needed" in capsys.readouterr().out


def test_without_a_complete_run_there_is_nothing_to_say(tmp_path, capsys):
    write_run(tmp_path / "r", stop={0: 2})
    assert main(["components", str(tmp_path)]) == 2
    assert "no complete run" in capsys.readouterr().err


def many(problems, still, moving):
    """Rows of `components` of `problems`, with outcomes that do not vary from run to run and others that do."""
    rows = [
        {
            "app": app, "problem": "", "outcome": f"value_{k:03d}", "scale": "relative", "kind": RUN_TO_RUN,
            "factor": factor, "levels": 6, "df": 4, "variance": 1e-20 * k * (k >= still), "low": np.nan, "high": np.nan,
            "share": 0.5, "share_low": np.nan, "share_high": np.nan, "remark": "", "refused": "", "left_out": 0,
            "observations": 6, "drawn": "", "resamples": 0, "units": 0,
        }
        for app in problems for k in range(still + moving) for factor in (LAUNCH, REPEAT)
    ]  # fmt: skip
    one = {
        **rows[0],
        "factor": "node",
        "variance": np.nan,
        "remark": "one node only: these numbers do not contain its variance",
    }
    return pd.DataFrame([*rows, *({**one, "app": app} for app in problems)])


@pytest.mark.parametrize("moving, drawn, listed", [(5, 5, 5), (25, 12, 25), (200, 12, 100)])
def test_outcomes_that_do_not_vary_are_counted_and_many_are_cut(moving, drawn, listed):
    table = many(["a"], 9, moving)
    ((title, shown),) = component_tables(table)
    assert (
        "; no variance: value_000, value_001, value_002, value_003, value_004, value_005 and 3 more" in title
    )
    assert len(shown.rows) == 2 * listed and (f"the first 100 of {moving} outcomes" in title) == (
        listed < moving
    )
    (figure,) = component_figures(table[table["variance"] > 0])
    assert figure.data["outcome"].nunique() == drawn
    assert (f"The first 12 of {moving} outcomes." in figure.caption) == (drawn < moving)


def test_a_reason_is_given_once_for_all_problems():
    assert notes(many(["a", "b"], 0, 2)) == [
        "a; b: value_000: one node only: these numbers do not contain its variance"
    ]
