"""Laws of scaling: data of a known law in, that law out."""

import numpy as np
import pandas as pd
import pytest

from analysis.studies.scaling.fit import STRONG_MODELS, aicc, curve, fits, intervals
from analysis.studies.scaling.series import STRONG, WEAK

SIZES = np.array([1, 2, 4, 8, 16, 32])


def points(law, kind=STRONG, sizes=SIZES, runs=8, noise=0.02, seed=3):
    """`runs` runs on each of `sizes`, their times those of `law` with relative `noise`."""
    p = np.repeat(sizes, runs)
    seconds = law(p) * (1 + noise * np.random.default_rng(seed).normal(size=len(p)))
    return pd.DataFrame({"series": "s", "kind": kind, "size": p, "wall_s": seconds})


def best(table):
    return table[table["chosen"]].iloc[0]


LAWS = {
    "amdahl": (lambda p: 9 / p + 1, (9, 1)),
    "amdahl + log": (lambda p: 9 / p + 0.5 + 0.4 * np.log2(p), (9, 0.5, 0.4)),
    "p log p": (lambda p: 9 / p + 0.5 + 0.05 * p * np.log2(p), (9, 0.5, 0.05)),
}


@pytest.mark.parametrize("name", LAWS)
def test_the_law_that_made_the_data_is_chosen(name):
    law, coefficients = LAWS[name]
    row = best(fits(points(law, noise=0.002)))
    assert row["model"] == name
    assert row[["a", "b", "c"]].dropna().tolist() == pytest.approx(coefficients, rel=0.03)
    assert row["error"] == pytest.approx(0.002, rel=0.3)


def test_the_universal_scalability_law_has_its_parameters():
    def law(p):
        return 10 * (1 + 0.05 * (p - 1) + 0.002 * p * (p - 1)) / p

    table = fits(points(law, noise=1e-4)).set_index("model")
    usl = table.loc["usl"]
    assert [usl["a"] + usl["b"], usl["b"] / 10, usl["c"] / 10] == pytest.approx([10, 0.05, 0.002], rel=0.02)
    assert table.loc[["usl", "amdahl + linear"], "delta"].max() < 2  # one family: not told apart
    chosen = table[table["chosen"]].iloc[0]
    assert "not decided against" in chosen["remark"]


def test_all_candidates_are_reported_with_their_distance():
    table = fits(points(LAWS["amdahl"][0]))
    assert table["delta"].tolist() == sorted(table["delta"]) and table["delta"].iloc[0] == 0
    assert len(table) == 5 and table["chosen"].sum() == 1
    assert (table["range"] == "measured: 1 to 32 ranks").all()


def test_fewer_than_four_rank_counts_are_refused_with_the_reason():
    table = fits(points(LAWS["amdahl"][0], sizes=SIZES[:3]))
    assert not table["chosen"].any()
    assert table["remark"].tolist() == ["not fitted: 3 rank counts, a fit needs 4"]


def test_nothing_is_computed_beyond_what_was_measured():
    row = next(fits(points(LAWS["amdahl"][0])).itertuples(index=False))
    inside = curve(row, np.array([1.0, 32.0]))
    assert inside == pytest.approx([10, 9 / 32 + 1], rel=0.02)
    assert np.isnan(curve(row, np.array([0.5, 33.0, 1000.0]))).all()


def test_coefficients_are_never_negative():
    table = fits(points(lambda p: 10 / p**1.3))  # better than ideal: a cache effect
    assert (table[["a", "b", "c"]].fillna(0) >= 0).all(axis=None)


def test_gustafson_finds_the_serial_share_of_weak_scaling():
    row = best(fits(points(lambda p: 5 / (1 - 0.2 * (1 - 1 / p)), WEAK, noise=0.003)))
    assert row["model"] == "gustafson"
    assert [row["a"], row["b"]] == pytest.approx([5, 0.2], rel=0.05)


@pytest.mark.parametrize(("name", "law"), [("log", np.log2), ("linear", lambda p: p - 1)])
def test_weak_scaling_that_communication_slows_down(name, law):
    row = best(fits(points(lambda p: 5 + 0.3 * law(p), WEAK)))
    assert row["model"] == f"constant + {name}"
    assert row["b"] == pytest.approx(0.3, rel=0.1)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    held = 0
    for seed in range(30):
        sample = points(LAWS["amdahl"][0], noise=0.05, seed=seed)
        low, high = intervals(STRONG_MODELS[0], sample["size"].to_numpy(float), sample["wall_s"].to_numpy())[
            "s"
        ]
        held += low <= 0.1 <= high
    assert (
        held >= 24
    )  # of 30 at 95 %, fewer have a probability below 1e-3; a percentile interval is a little short


def test_one_run_on_each_rank_count_has_no_interval():
    table = fits(points(LAWS["amdahl"][0], runs=1))
    assert "(" not in best(table)["parameters"]


def test_too_few_runs_for_a_law_say_so():
    table = fits(points(LAWS["amdahl"][0], runs=1, sizes=SIZES[:4])).set_index("model")
    assert table.loc["usl", "remark"] == "too few runs for as many coefficients"


def test_aicc_by_hand():
    residuals = np.full(10, 0.1)
    assert aicc(residuals, 2) == pytest.approx(10 * np.log(0.01) + 6 + 2 * 3 * 4 / 6)
    assert aicc(residuals[:4], 2) == np.inf


def test_a_law_that_does_not_fit_is_said_not_to():
    def cliff(p):
        return np.where(p < 4, 8 / p, np.where(p < 16, 12 / p**0.1, 3.0))  # some rank counts share cores

    for runs in (1, 4):
        table = fits(points(cliff, sizes=SIZES[:5], runs=runs, noise=0.01))
        assert not table["chosen"].any() and table["error"].iloc[0] > 0.1
        assert table["remark"].iloc[0].startswith("does not fit: off by ")
        assert table["parameters"].iloc[0] == "" and table["range"].iloc[0] == ""


def test_runs_that_scatter_tell_no_law():
    table = fits(points(LAWS["amdahl"][0], noise=0.15, runs=40))
    assert not table["chosen"].any()
    assert (
        table["remark"]
        .str.startswith(("no verdict: runs on one rank count scatter by", "does not fit"))
        .all()
    )
    assert table["remark"].str.startswith("no verdict").any()
