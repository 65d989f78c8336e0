"""The fastest sharding of DLRM's tables by prices: the exact search, seconds of tables, whole plans, the command."""

import json
from itertools import product

import numpy as np
import pytest
from mpi4py import MPI

from analysis.predict.costs.machines import read_machine
from analysis.predict.plans.price import Prices
from miniapps.dlrm import APP, assignments
from miniapps.dlrm.assignments import search
from miniapps.dlrm.choosing import compare, in_words
from miniapps.dlrm.commands import main as sharding
from miniapps.dlrm.config import DlrmConfig
from miniapps.dlrm.program import planned
from miniapps.dlrm.validate import complete
from miniapps.embeddings.sharding import SHARDINGS, Sharding
from miniapps.embeddings.tables import MESSAGES
from miniapps.runner.main import main
from miniapps.runner.options import RunOptions

RNG = np.random.default_rng(1)
MACHINE = """
name = "a device"
latency = 2e-5
bandwidth = 1e9
[device]
product = 1e11
achieved = 0.5
memory = 1e10
capacity = 1e9
launch = 1e-6
width = 4
[node]
devices = 1
latency = 1e-6
bandwidth = 1e10
"""
SMALL = ["--tables", "2", "--rows", "5000", "--pooling", "4", "--batch", "64", "--set", "training.micro=16", "--set",
         "model.hidden=8"]  # fmt: skip


def configured(size, sharding="table", level="layout", **sizes):
    config, options = DlrmConfig(), RunOptions(guarantee=level)
    own = {"tables": 2, "rows": 5000, "pooling": 4, "columns": 16, "sharding": sharding} | sizes
    for name, value in own.items():
        setattr(config.embeddings, name, value)
    config.training.batch, config.training.micro, config.model.hidden = 64, 16, 8
    config.model.aggregate = "exact" if level == "exact" else "sorted"
    complete(config, options, size)
    return config, options


@pytest.fixture
def machine(tmp_path):
    path = tmp_path / "machine.toml"
    path.write_text(MACHINE)
    return str(path)


# ---- the search


def brute(costs):
    return sorted(
        (float(sum(of[k] for of, k in zip(costs, chosen, strict=True)).max(axis=-1).sum()), chosen)
        for chosen in product(*(range(len(of)) for of in costs))
    )


@pytest.mark.parametrize("limit", [assignments.ENUMERATED, 0])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("phases", [1, 3])
def test_the_ten_best_are_those_of_all(monkeypatch, limit, size, phases):
    monkeypatch.setattr(assignments, "ENUMERATED", limit)
    for items in (1, 2, 5):
        costs = [
            RNG.random((RNG.integers(1, 5), phases, size)) * RNG.choice([0.1, 1.0]) for _ in range(items)
        ]
        found, expected = search(costs), brute(costs)[:10]
        assert found.exact and len(found.best) == len(expected)
        np.testing.assert_allclose([seconds for seconds, _ in found.best], [of for of, _ in expected])
        assert [options for _, options in found.best] == [options for _, options in expected]


def test_large_spaces_leave_branches_out_and_are_exact():
    costs = [np.full((8, 1, 2), 0.01) + RNG.random((8, 1, 2)) for _ in range(9)]
    found = search(costs)
    assert found.exact and found.looked < 8**9 / 100
    # Any one change of the best is no better.
    (seconds, options), *_ = found.best
    total = sum(of[k] for of, k in zip(costs, options, strict=True))
    for item, of in enumerate(costs):
        assert (assignments.seconds_of(total - of[options[item]] + of) >= seconds - 1e-12).all()


def test_a_search_that_stops_says_how_far_off_it_may_be(monkeypatch):
    costs = [0.5 + 0.01 * np.random.default_rng(t).random((4, 2, 2)) for t in range(8)]
    whole = search(costs)
    assert whole.exact
    monkeypatch.setattr(assignments, "LIMIT", 20)
    monkeypatch.setattr(assignments, "ENUMERATED", 0)
    found = search(costs)
    assert not found.exact and found.looked == 20
    assert found.least <= whole.best[0][0] <= found.best[0][0]


def test_many_equal_items_are_spread_over_ranks_before_the_search_stops(monkeypatch):
    """26 items that one rank does in 6 s, and all 4 ranks together in 2.2 s each: seven on a rank are the fastest."""
    monkeypatch.setattr(assignments, "LIMIT", 1000)
    alone = [np.where(np.arange(4) == rank, 6.0, 0.0)[None] for rank in range(4)]
    found = search([np.array([np.full((1, 4), 2.2), *alone])] * 26)
    counts = np.bincount(found.best[0][1], minlength=5)
    assert found.best[0][0] <= 42 and found.least >= 39 and counts[1:].min() >= 5
    assert len({seconds for seconds, _ in found.best}) == len(found.best)


@pytest.mark.parametrize(
    "wrong", [np.zeros((0, 1, 2)), np.array([[[-1.0]]]), np.array([[[np.nan]]]), np.array([[[np.inf]]])]
)
def test_costs_that_are_none_are_refused(wrong):
    with pytest.raises(ValueError, match="item 0 has no options"):
        search([wrong])


# ---- seconds of tables


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("name", SHARDINGS)
@pytest.mark.parametrize("level", ["none", "exact"])
def test_calls_for_tables_send_the_bytes_of_all_exchanges(name, size, level):
    config, options = configured(size, name, level)
    calls = []
    program = planned(config, options, size, calls)
    assert len(calls) == size and {call.table for of_rank in calls for call in of_rank} == {0, 1}
    for of in program.classes:
        for rank in of.ranks:
            sent = sum(n for call in calls[rank] for to, n in call.nbytes.items() if to != rank)
            assert sent == sum(wait.nbytes for wait in of.waits if wait.name in MESSAGES)


@pytest.mark.parametrize("size", [1, 2])
def test_the_best_of_all_plans_is_found(machine, size):
    """Every assignment priced as a whole plan, without noise: the search over sums of tables leads to the best."""
    config, options = configured(size)
    found = compare(config, options, size, (), machine)
    assert found.found.exact and not found.left
    names = [name for name in SHARDINGS if name != "row-pooled"]
    choices = [
        Sharding(name, rank) for name in names for rank in (range(size) if name == "table" else [None])
    ]
    assert found.count == len(choices) ** 2
    prices = Prices([], read_machine(machine))
    taken = {}
    for pair in product(choices, repeat=2):
        config.embeddings.sharding = in_words(pair)
        taken[in_words(pair)] = float(prices.of(planned(config, options, size), clock="wall").samples[0])
    rows = found.price["tables"]["plans"]
    assert rows[0]["p50_s"] == pytest.approx(min(taken.values()), rel=1e-9)
    for row in rows:
        text = found.shardings[row["title"]]
        assert text == "table" or row["p50_s"] == pytest.approx(taken[text], rel=1e-9)
    assert {"replicated", "column", "row"} <= set(found.shardings.values()) or size == 1


def test_shardings_that_keep_no_guarantee_are_left_out_and_long_ones_have_short_titles(machine):
    config, options = configured(2, tables=30, level="none", rows=50)
    found = compare(config, options, 2, (), machine)
    assert "row-pooled" in found.shardings.values()
    assert all(len(title) < 120 for title in found.shardings)
    assert "assignments of shardings to tables" in found.sentence()


# ---- the command, and --sharding auto


def test_the_command_says_what_is_fastest(machine, capsys):
    assert sharding(["--ranks", "2", *SMALL, "--guarantee", "layout", "--machine", machine, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["assignments"] == 25 and document["exact"] is True and document["left"] == []
    titles = {row["title"] for row in document["price"]["tables"]["plans"]}
    assert titles == {row["title"] for row in document["shardings"]}
    assert sharding(["--ranks", "2", *SMALL, "--guarantee", "layout", "--machine", machine]) == 0
    shown = capsys.readouterr().out
    assert "25 assignments of shardings to tables" in shown and "\nBest: --sharding " in shown


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--ranks", "2"], "--calibration DIR is missing"),
        (["--ranks", "0", "--machine", "x"], "--ranks 0: give 1 to"),
        (["--ranks", "2", "--machine", "nowhere.toml"], "nowhere.toml"),
        (["--ranks", "2", "--calibration", "nowhere"], "nowhere"),
        (["--ranks", "2", "--machine", "x", "--sharding", "row"], "compares all of them; leave it out"),
        (["--ranks", "2", "--machine", "x", "--sharding=row"], "compares all of them; leave it out"),
        (["--ranks", "2", "--machine", "x", "--batch", "33"], "choose a multiple of training.micro"),
        (["--ranks", "2", "--machine", "x", "--rows", "0"], "embeddings.rows must be"),
        (["--ranks", "2", "--machine", "x", "--row", "9"], "unknown argument --row"),
        (["--ranks", "2", "--machine", "x", "--guarantee", "exact"], "--aggregate sorted meets guarantee layout"),
    ],
)  # fmt: skip
def test_wrong_command_lines_are_refused(given, message, capsys):
    assert sharding([*given, *([] if "--batch" in given else ["--batch", "64"])]) == 2
    shown = capsys.readouterr()
    assert message in shown.err and not shown.out


def calibrated(out, plan):
    from miniapps.calibrate import APP as CALIBRATE

    few = ["--budget", "0", "--what", "programs", "--plan", plan, "--programs", "8", "--no-progress"]
    assert main(CALIBRATE, [*few, "--log-level", "error", "--out", str(out)], MPI.COMM_SELF) == 0
    return str(out)


def test_a_run_takes_the_fastest_and_says_what_has_no_price(tmp_path, capsys):
    sizes = "tables=2 rows=5000 pooling=4 batch=64 micro=16 hidden=8 guarantee=layout"
    cal = calibrated(tmp_path / "cal", f"dlrm row|table|column|mixed {sizes}")
    auto = [*SMALL, "--guarantee", "layout", "--sharding", "auto", "--steps", "2", "--quiet"]
    capsys.readouterr()
    assert main(APP, [*auto, "--calibration", cal, "--out", str(tmp_path / "run")], MPI.COMM_SELF) == 0
    taken = json.loads((tmp_path / "run" / "result.json").read_text())["config"]["embeddings"]["sharding"]
    assert set(taken.replace(":rank=0", "").split(",")) <= set(SHARDINGS) - {"row-pooled"}
    for given, message in (
        (["--sharding", "auto"], "compares prices"),
        (["--sharding", "row", "--calibration", cal], "uses no prices; choose --sharding auto"),
        (["--sharding", "auto", "--calibration", str(tmp_path / "none")], "none"),
    ):
        assert main(APP, [*SMALL, *given, "--out", str(tmp_path / "no")], MPI.COMM_SELF) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "no").exists()


def test_shardings_without_prices_are_named(tmp_path):
    sizes = "tables=2 rows=5000 pooling=4 batch=64 micro=16 hidden=8 guarantee=layout"
    cal = calibrated(tmp_path / "cal", f"dlrm row {sizes}")
    config, options = configured(1)
    found = compare(config, options, 1, [cal])
    assert {name for name, _ in found.left} == {"replicated", "table", "column"} and found.best == "row"
    assert all("has no time of" in reason for _, reason in found.left)
