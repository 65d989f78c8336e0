"""Costs of lookups, and the search of the fastest sharding."""

import json
from itertools import product

import numpy as np
import pytest
from mpi4py import MPI

from analysis.__main__ import main as analysis
from analysis.predict.choices import lookups, search
from analysis.predict.choices.lookups import SHARDINGS, WORK, Load
from analysis.predict.choices.sharding import options
from miniapps.dlrm import APP
from miniapps.embeddings.histogram import described
from miniapps.embeddings.sharding import Table
from miniapps.runner.main import main
from miniapps.untrusted.lookups import read_chosen, read_measured
from miniapps.untrusted.regular import Refused
from tests.analysis.sharding_runs import timed, write_asked

RNG = np.random.default_rng(1)


def load(rows=400, exponent=0.8, columns=8, samples=64, pooling=4, steps=50):
    share = np.arange(1, rows + 1.0) ** -exponent
    asked = np.random.default_rng(3).choice(rows, samples * pooling * steps, p=share / share.sum())
    given = described(Table("t", rows, columns, 8), samples, steps, asked)
    of = Load(**given | {"classes": np.array(given["classes"]), "shares": np.array(given["shares"])})
    return of, asked


# ---- the search


def brute(costs):
    return sorted(
        (max(sum(of[k] for of, k in zip(costs, chosen, strict=True))), chosen)
        for chosen in product(*(range(len(of)) for of in costs))
    )


@pytest.mark.parametrize("limit", [search.ENUMERATED, 0])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_the_ten_best_are_those_of_all(monkeypatch, limit, size):
    monkeypatch.setattr(search, "ENUMERATED", limit)
    for items in (1, 2, 5):
        costs = [RNG.random((RNG.integers(1, 5), size)) * RNG.choice([0.1, 1.0]) for _ in range(items)]
        found, expected = search.search(costs, fixed=0.5), brute(costs)[:10]
        assert found.exact and len(found.best) == len(expected)
        np.testing.assert_allclose([of.seconds for of in found.best], [0.5 + of for of, _ in expected])
        assert [of.options for of in found.best] == [options for _, options in expected]


def test_large_spaces_leave_branches_out_and_are_exact():
    costs = [np.full((8, 2), 0.01) + RNG.random((8, 2)) for _ in range(9)]
    found = search.search(costs)
    assert found.exact and found.looked < 8**9 / 100
    # Any one change of the best is no better.
    best, total = found.best[0], sum(of[k] for of, k in zip(costs, found.best[0].options, strict=True))
    for item, of in enumerate(costs):
        assert ((total - of[best.options[item]] + of).max(axis=1) >= best.seconds - 1e-12).all()


def test_parts_of_bags_are_searched_where_no_sum_depends_on_the_ranks():
    for order, layout, pooled in (("exact", True, True), ("sorted", True, False), ("sorted", False, True)):
        names = {name for name, _ in options(2, order, layout)}
        assert names == {name for name in SHARDINGS if pooled or name != "row-pooled"}


def test_what_cannot_be_told_apart_follows_from_the_spread():
    answer = search.search([np.array([[1.0], [1.05], [2.0]])], spread=0.1, apart=0.05)
    assert [of.apart for of in answer.best] == [False, False, True]
    assert answer.best[0].low == pytest.approx(np.exp(-0.128155), rel=1e-3)
    assert [of.apart for of in search.search([np.array([[1.0], [1.05]])]).best] == [False, True]


@pytest.mark.parametrize("wrong", [np.zeros((0, 2)), np.array([[-1.0]]), np.array([[np.nan]])])
def test_costs_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="item 0 has no options"):
        search.search([wrong])


# ---- costs


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.2])
def test_hits_are_those_of_a_cache_that_forgets_what_was_used_longest_ago(exponent):
    of, asked = load(exponent=exponent)
    for room in (10, 100):
        held, hits = {}, 0
        for row in asked.tolist():
            hits += held.pop(row, None) is not None
            held[row] = True
            if len(held) > room:
                del held[next(iter(held))]
        assert of.hits(room) == pytest.approx(hits / len(asked), abs=0.03)
    assert of.hits(400) == 1.0 and of.hits(0) == 0.0


def test_distinct_rows_are_as_many_as_are_met():
    of, asked = load()
    met = np.mean([len(np.unique(part)) for part in np.split(asked, 50)])
    assert of.distinct(of.lookups) == pytest.approx(met, rel=0.03)


@pytest.mark.parametrize("sharding", SHARDINGS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_lookup_is_on_some_rank(sharding, size):
    of, _ = load()
    counted = lookups.work(of, sharding, size, 2**20, rank=size - 1)
    rows, messages = (counted[:, WORK.index(name)] for name in (f"{sharding}: rows", "messages"))
    assert rows.sum() == pytest.approx(of.lookups * (size if sharding == "column" else 1))
    assert (messages > 1e-6).all() == (size > 1) and counted.min() >= 0


def test_rates_that_made_the_times_are_found_again():
    true = 10 ** RNG.uniform(-9, -6, len(WORK))
    counted, seconds, problems = [], [], []
    for problem in range(60):
        of, _ = load(
            *(int(RNG.integers(20, 2000)), 0.7, int(RNG.integers(4, 64)), 64, int(RNG.integers(1, 9)), 2)
        )
        for sharding in SHARDINGS:
            counted.append(lookups.work(of, sharding, 2, 2**14, rank=problem % 2))
            counted[-1][:, -1] = 1.0
            seconds.append(float((counted[-1] @ true).max()))
            problems.append(problem)
    rates = lookups.fit(counted, seconds, problems)
    assert rates.spread < 0.03
    with pytest.raises(ValueError, match="steps do not determine"):
        lookups.fit(counted[:3], seconds[:3], problems[:3])


# ---- the command, and what an application makes of it


ZIPF = ["--rows", "60", "--tables", "2", "--pooling", "2", "--batch", "32",
        "--set", "training.micro=8", "--steps", "2", "--quiet"]  # fmt: skip


def test_the_fastest_sharding_is_chosen_from_a_trace_and_taken_by_a_run(tmp_path, capsys):
    times, out = timed(tmp_path / "times.json"), tmp_path / "choice.json"
    assert main(APP, [*ZIPF, "--out", str(tmp_path / "run")], MPI.COMM_SELF) == 0
    capsys.readouterr()
    assert analysis(["sharding", str(tmp_path / "run"), "--times", str(times), "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "Predicted to be the fastest on 1 rank: replicated,replicated" in shown
    assert "another processor" in shown
    assert read_chosen(out).tables == [("0", 60), ("1", 60)]
    auto = ["--sharding", "auto", "--choice", str(out), "--out", str(tmp_path / "auto")]
    assert main(APP, [*ZIPF, *auto], MPI.COMM_SELF) == 0
    recorded = json.loads((tmp_path / "auto" / "result.json").read_text())
    assert recorded["config"]["embeddings"]["sharding"] == "replicated,replicated"
    capsys.readouterr()
    for given, message in (
        (["--sharding", "auto"], "give --choice CHOICE"),
        (["--sharding", "auto", "--choice", str(times)], "is not what this program writes"),
        (["--sharding", "auto", "--choice", str(tmp_path / "none")], "cannot be read"),
        (["--sharding", "auto", "--choice", str(out), "--rows", "61"], "choose again for this run"),
        (["--sharding", "row", "--choice", str(out)], "choose --sharding auto"),
    ):
        assert main(APP, [*ZIPF, "--out", str(tmp_path / "refused"), *given], MPI.COMM_SELF) == 2
        assert message in capsys.readouterr().err


def test_files_that_are_not_what_they_should_be_are_refused(tmp_path, capsys):
    times = timed(tmp_path / "times.json")
    content = json.loads(times.read_text())
    assert main(APP, [*ZIPF, "--out", str(tmp_path / "run")], MPI.COMM_SELF) == 0
    capsys.readouterr()
    for change, message in (
        (
            lambda of: of["problems"][0]["steps"][0].update(cpu=float("nan")),
            "is not what this program writes",
        ),
        (lambda of: of["problems"][0]["steps"][0].update(cpu=-1.0), "is not what this program writes"),
        (lambda of: of["problems"][0]["steps"][0]["shardings"].pop(), "1 shardings for 2 tables"),
        (lambda of: of.update(problems=of["problems"][:1]), "steps do not determine"),
    ):
        wrong = json.loads(json.dumps(content))
        change(wrong)
        (tmp_path / "wrong.json").write_text(json.dumps(wrong))
        assert analysis(["sharding", str(tmp_path / "run"), "--times", str(tmp_path / "wrong.json")]) == 2
        assert message in capsys.readouterr().err
    with pytest.raises(Refused):
        read_measured(tmp_path / "run" / "result.json")
    for out, message in ((times, "would be lost"), (tmp_path, "not a file"), ("/dev/full", "not a file")):
        assert analysis(["sharding", str(tmp_path / "run"), "--times", str(times), "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert json.loads(times.read_text()) == content


@pytest.mark.parametrize("name", ["input:asked.rows:0", "input:asked.shares:0", "input:asked.lookups:1"])
@pytest.mark.parametrize("value", [float("nan"), -1.0, 1e300])
def test_a_trace_with_numbers_of_no_table_is_refused(tmp_path, capsys, name, value):
    run = write_asked(tmp_path / "run", change={name: value})
    assert analysis(["sharding", str(run), "--times", str(timed(tmp_path / "times.json"))]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and str(run) in shown.err
