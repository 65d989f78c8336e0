"""The growth of a difference with the iteration of a solver: a case is a study, over all its runs."""

import numpy as np
import pytest

from analysis.load.frames import load
from analysis.studies.solves.runs import solves
from analysis.studies.solves.tables import known_of
from tests.analysis.solves_runs import FALLING, solve, studied, write_solves


def test_the_study_of_a_run_makes_a_row_of_its_case(tmp_path):
    difference = np.exp(-36 + np.linspace(3, 3.2, 6)[:, None] * np.arange(10))
    write_solves(tmp_path / "r", [solve(FALLING, difference=difference)])
    write_solves(tmp_path / "none", [solve(FALLING)], size=2)
    (row,) = known_of(solves(load([tmp_path]))).growth.to_dict("records")
    assert row["case"] == "none/arrival on 1 rank" and row["samples"] == 6 and row["tolerance"] == 1e-8
    assert row["rate"] == pytest.approx(3.1, rel=0.01) and (row["first"], row["last"]) == (0, 9)


def test_samples_of_several_runs_of_one_case_are_one_study(tmp_path):
    for name in "ab":
        rng = np.random.default_rng(ord(name))
        difference = np.exp(-36 + rng.uniform(2.9, 3.1, (3, 1)) * np.arange(10))
        write_solves(tmp_path / name, [solve(FALLING, difference=difference)], seed=ord(name))
    (row,) = known_of(solves(load([tmp_path]))).growth.to_dict("records")
    assert row["samples"] == row["rates"] == 6 and row["rate_low"] <= row["rate"] <= row["rate_high"]


def test_conjugate_gradients_in_drawn_orders_grow_until_the_solves_have_nothing_in_common(tmp_path):
    """A badly conditioned system; the rate, found by the phase, agrees with the one between two fixed levels."""
    write_solves(tmp_path / "r", [studied(samples=8, limit=110, contrast=100.0)])
    records = solves(load([tmp_path]))
    (row,) = known_of(records).growth.to_dict("records")
    assert row["nothing"] == "" and row["largest"] > 1e-6 and row["crossed"] == 8
    assert abs(row["predicted"] - row["observed"]) <= 3
    for _, sample in records.samples.groupby("sample"):
        y = sample["difference"].to_numpy()
        i, j = np.argmax(y >= 1e-13), np.argmax(y >= 1e-7)
        assert np.log(y[j] / y[i]) / (j - i) == pytest.approx(row["rate"], rel=0.25)
