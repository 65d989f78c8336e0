"""Frames of `solver`: what is a family and a case, where histories part, and whether a decision changed."""

import numpy as np
import pytest

from analysis.__main__ import main
from analysis.load.frames import load
from analysis.pairs import EACH_OTHER
from analysis.studies.solves.runs import solves
from analysis.studies.solves.tables import changed, known_of, sentences, stops
from tests.analysis.solves_runs import FALLING, TOLERANCE, solve, write_solves
from tests.analysis.synthetic import write_run

EPS = 2.0**-52


def call(*arguments):
    return main([str(argument) for argument in arguments])


def made_of(*paths):
    return known_of(solves(load(paths)))


def falling(iterations=8, **more):
    return solve(FALLING[: iterations + 1], **more)


def changed_at(step, ulps=1, iterations=8):
    """The residuals of `falling` with other bits from iteration `step` on."""
    residual = FALLING[: iterations + 1].copy()
    residual[step:] *= 1 + ulps * EPS
    return solve(residual, converged=True)


def test_a_solve_is_described_by_what_it_recorded(tmp_path):
    true = [1.0, None, 1e-2, None, 1e-4, None, None, 1.5e-7, None]
    more = {"true_residual": true, "error": FALLING[:9] / 2, "orthogonality": [0, 1e-3, 1e-9] + [0.0] * 6,
            "x": np.random.default_rng(1).normal(size=(9, 4, 5))}  # fmt: skip
    write_solves(tmp_path / "r", [falling(**more)], size=2, guarantee="layout", ordering="exact")
    (row,) = solves(load([tmp_path])).solves.to_dict("records")
    assert row["family"] == "poisson27 8 x 8 x 8, cg" and row["case"] == "layout/exact on 2 ranks"
    assert (row["iterations"], row["converged"], row["tolerance"], row["ranks"]) == (8, 1, TOLERANCE, 2)
    assert row["residual"] == FALLING[8] and row["true_residual"] == row["attained"] == 1.5e-7
    assert row["gap"] == 1.5e-7 - FALLING[7]  # at the last iteration that has both
    assert row["error"] == FALLING[8] / 2 and row["orthogonality"] == 1e-3
    assert len(row["history"]) == len(row["solution"]) == 32


def test_a_method_or_a_preconditioner_makes_a_family_and_the_rest_makes_cases(tmp_path):
    for k, method in enumerate([
        {}, {"solve.preconditioner": "jacobi"}, {"solve.method": "gmres-mgs"}, {"solve.spmv": "merge"},
        {"solve.method": "gmres-mgs", "tuning.restart": 10},
    ]):  # fmt: skip
        write_solves(tmp_path / f"r{k}", [falling()], method=method)
    write_solves(tmp_path / "ranks", [falling()], size=2)
    write_solves(tmp_path / "exact", [falling()], guarantee="exact", ordering="exact")
    table = solves(load([tmp_path])).solves
    box = "poisson27 8 x 8 x 8"
    assert {family: set(same["case"]) for family, same in table.groupby("family")} == {
        f"{box}, cg, restart=30": {
            "none/arrival (spmv=csr) on 1 rank", "none/arrival (spmv=merge) on 1 rank",
            "none/arrival (spmv=csr) on 2 ranks", "exact/exact on 1 rank",
        },
        f"{box}, cg with jacobi, restart=30": {"none/arrival on 1 rank"},
        f"{box}, gmres-mgs, restart=30": {"none/arrival on 1 rank"},
        f"{box}, gmres-mgs, restart=10": {"none/arrival on 1 rank"},
    }  # fmt: skip


def test_other_problems_are_other_families_whatever_they_are_called(tmp_path):
    write_solves(tmp_path / "a", [falling()])
    write_solves(tmp_path / "b", [falling()], problem="p1", tolerance=1e-6)
    write_solves(
        tmp_path / "c", [falling()], problem="p2", config={"solve": {}, "problem": {"matrix": "a/b.mtx"}}
    )
    write_solves(tmp_path / "d", [falling()], problem="p3", config={"solve": {}})
    families = solves(load([tmp_path])).solves["family"].tolist()
    assert len(set(families)) == 4 and any(family.startswith("b.mtx") for family in families)
    assert sum("tolerance=1e-06" in family for family in families) == 1


def test_histories_and_solutions_are_counted_by_their_bits(tmp_path):
    x = np.zeros((9, 2, 3))
    other = x.copy()
    other[8, 1, 2] = -0.0
    write_solves(tmp_path / "r", [falling(x=x), falling(x=x), changed_at(8) | {"x": x}, falling(x=other)])
    (row,) = made_of(tmp_path).cases.to_dict("records")
    assert (row["solves"], row["histories"], row["solutions"], row["recorded"]) == (4, 2, 2, 4)


def test_what_was_not_recorded_is_not_counted(tmp_path):
    write_solves(tmp_path / "r", [falling(), falling()])
    (row,) = made_of(tmp_path).cases.to_dict("records")
    assert (row["histories"], row["solutions"], row["recorded"]) == (1, 0, 0)
    assert np.isnan(row["true_residual"]) and np.isnan(row["gap"]) and np.isnan(row["orthogonality"])


def test_the_first_iteration_of_other_bits_and_the_drift_are_found(tmp_path):
    write_solves(tmp_path / "r", [falling(), falling(), changed_at(5, 3)])
    pairs = made_of(tmp_path).pairs
    assert pairs["against"].tolist() == [EACH_OTHER] * 2
    equal, differ = pairs.to_dict("records")
    assert (equal["differing"], equal["largest"], equal["compared"]) == (0, 0, 9) and np.isnan(equal["first"])
    assert (differ["first"], differ["differing"]) == (5, 4)
    assert differ["largest"] == pytest.approx(3 * EPS, rel=0.5) and differ["at"] >= 5


def test_repeats_and_cases_are_compared_apart(tmp_path):
    write_solves(tmp_path / "none", [changed_at(3), changed_at(4)])
    write_solves(tmp_path / "layout", [falling()] * 2, guarantee="layout", ordering="exact")
    pairs = made_of(tmp_path).pairs
    firsts = {(row.case, row.against): row.first for row in pairs.itertuples()}
    assert list(firsts) == [
        ("none/arrival on 1 rank", EACH_OTHER), ("none/arrival on 1 rank", "layout:0"),
        ("layout/exact on 1 rank", EACH_OTHER),
    ]  # fmt: skip
    assert firsts["none/arrival on 1 rank", EACH_OTHER] == 3
    assert firsts["none/arrival on 1 rank", "layout:0"] == 3 and np.isnan(
        firsts["layout/exact on 1 rank", EACH_OTHER]
    )


def test_histories_of_other_methods_are_never_compared(tmp_path):
    write_solves(tmp_path / "a", [falling()])
    write_solves(tmp_path / "b", [falling(6, converged=True)], method={"solve.method": "bicgstab"})
    results = made_of(tmp_path)
    assert results.pairs.empty and not changed(results)


def test_a_changed_decision_is_said(tmp_path):
    write_solves(tmp_path / "r", [falling(), falling(), falling(9), falling(5, converged=False)])
    results = made_of(tmp_path)
    (sentence,) = sentences(results)
    assert sentence == (
        "poisson27 8 x 8 x 8, cg: a decision changed: 5 not converged (1 x), 8 (2 x), 9 (1 x) iterations."
    )
    assert changed(results)[0][:2] == ("poisson27 8 x 8 x 8, cg", "differs")


def test_one_decision_and_one_solve_are_told_apart(tmp_path):
    write_solves(tmp_path / "a", [falling()])
    assert sentences(made_of(tmp_path)) == [
        "poisson27 8 x 8 x 8, cg: 1 solve, 8 iterations: nothing to compare with."
    ]
    write_solves(tmp_path / "b", [changed_at(2)], size=2)
    assert sentences(made_of(tmp_path)) == [
        "poisson27 8 x 8 x 8, cg: one decision in 2 solves: 8 iterations (p < 78 % at 95 %)."
    ]


def test_decisions_of_injected_orders_are_said(tmp_path):
    drawn = {"difference": np.zeros((3, 9)), "drift_residual": np.ones((3, 9))}
    write_solves(tmp_path / "same", [falling(drift_iterations=[8, 8, 8], **drawn)])
    assert sentences(made_of(tmp_path))[0].endswith(
        "; injected orders: one decision, 8 iterations in 3 samples (p < 63 % at 95 %)."
    )
    write_solves(
        tmp_path / "other", [falling(drift_iterations=[8, 9, 8], **drawn)], problem="p1", kind="poisson7"
    )
    results = made_of(tmp_path / "other")
    assert "a decision changed, 8 (2 x), 9 (1 x) iterations in 3 samples" in sentences(results)[0]
    assert len(changed(results)) == 1


@pytest.mark.parametrize("taken, words", [
    ({}, ""), ({(1, True): 3}, "1 iteration"), ({(7, False): 1}, "7 iterations, not converged"),
    ({(n, n < 14): 1 for n in range(10, 15)}, "10 to 14 iterations, 5 different outcomes, 1 x not converged"),
])  # fmt: skip
def test_many_numbers_of_iterations_are_a_range(taken, words):
    assert stops(taken) == words


def test_the_drift_study_is_read_by_sample(tmp_path):
    difference = np.arange(27.0).reshape(3, 9)
    write_solves(
        tmp_path / "r",
        [falling(difference=difference, drift_residual=-difference, drift_iterations=[5, 6, 7])],
    )
    records = solves(load([tmp_path]))
    assert records.samples["sample"].tolist() == [0] * 9 + [1] * 9 + [2] * 9
    assert records.samples["difference"].tolist() == difference.ravel().tolist()
    assert (records.samples["residual"] == -records.samples["difference"]).all()
    assert records.ends[["sample", "iterations"]].to_numpy().tolist() == [[0, 5], [1, 6], [2, 7]]


def test_a_sample_drawn_again_from_one_seed_is_no_new_sample(tmp_path):
    drawn = {"difference": np.ones((2, 9)), "drift_iterations": [8, 8]}
    other = {"difference": np.full((2, 9), 2.0), "drift_iterations": [8, 9]}
    write_solves(tmp_path / "a", [falling(**drawn), falling(**other)])
    write_solves(tmp_path / "b", [falling(**other)], seed=2)
    results = made_of(tmp_path)
    assert results.recorded.replays == 2 and len(results.recorded.ends) == 4
    assert sorted(results.recorded.samples["difference"].unique()) == [1, 2]
    assert any(
        "2 samples left out: their orders repeat those of the same seed" in note for note in results.notes
    )


def test_incomplete_solves_are_drawn_and_counted_nowhere(tmp_path):
    write_solves(tmp_path / "a", [falling()])
    cut = {"residual": FALLING[:4]}
    write_solves(tmp_path / "b", [cut], complete=False, result=False)
    results = made_of(tmp_path)
    (row,) = results.cases.to_dict("records")
    assert (row["solves"], row["incomplete"], row["decisions"]) == (1, 1, {(8, True): 1})
    assert results.pairs.empty and len(results.recorded.solves) == 2
    assert any("1 solve ended early" in note for note in results.notes)


def test_residuals_that_are_no_numbers_are_counted_and_compared_by_their_bits(tmp_path):
    residual = FALLING[:9].copy()
    residual[6:] = np.nan
    bad = solve(residual, converged=False)
    write_solves(tmp_path / "r", [bad, bad, falling()])
    results = made_of(tmp_path)
    (row,) = results.cases.to_dict("records")
    assert row["not_finite"] == 6 and row["histories"] == 2
    same, other = results.pairs.to_dict("records")
    assert same["differing"] == 0 and same["undefined"] == 0
    assert (other["first"], other["undefined"]) == (6, 3)
    assert any("6 residuals NaN or infinite" in note for note in results.notes)


def test_runs_with_a_fault_are_left_out(tmp_path):
    write_solves(tmp_path / "a", [falling()])
    write_solves(tmp_path / "b", [changed_at(1)], method={"run.fault": ["nan@step=1,block=0"]})
    assert len(solves(load([tmp_path])).solves) == 1


def test_the_command_prints_and_writes_what_is_known(tmp_path, capsys):
    write_solves(tmp_path / "r", [falling(), changed_at(2), falling(9)])
    assert call("solves", tmp_path / "r", "--csv", tmp_path / "csv") == 0
    out = capsys.readouterr().out
    assert "a decision changed: 8 (2 x), 9 (1 x) iterations." in out
    assert "Solves: poisson27 8 x 8 x 8, cg" in out and "Residual histories compared" in out
    assert "no guarantee, sums in order of arrival on" in out and "none/arrival" not in out
    assert {path.name for path in (tmp_path / "csv").iterdir()} == {
        "solves.csv", "cases.csv", "decisions.csv", "pairs.csv", "growth.csv", "samples.csv",
    }  # fmt: skip
    header, *rows = (tmp_path / "csv" / "solves.csv").read_text().splitlines()
    assert header.startswith("family,case,guarantee") and len(rows) == 3


def test_runs_without_residuals_are_refused(tmp_path, capsys):
    write_run(tmp_path / "a")
    assert call("solves", tmp_path) == 2
    assert "no run among these (coupled) recorded a residual" in capsys.readouterr().err


def test_a_place_for_csv_that_is_a_file_is_refused(tmp_path, capsys):
    run = write_solves(tmp_path / "r", [falling()])
    (tmp_path / "file").write_text("")
    assert call("solves", run, "--csv", tmp_path / "file") == 2
    assert "is a file; give a directory" in capsys.readouterr().err
