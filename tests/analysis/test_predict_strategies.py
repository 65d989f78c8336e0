"""Prices of guarantees, and the fastest of all strategies."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.errors import Unreachable
from analysis.predict.choices import strategies
from analysis.predict.choices.orderings import offered
from analysis.predict.choices.prices import levels, prices, targeted
from analysis.predict.reading.skeleton import skeleton
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.target import target
from miniapps.untrusted.ledger import read_ledger
from miniapps.untrusted.prediction import method_hash
from tests.analysis.predict_programs import (
    REDUCTION,
    calibrated,
    programs,
    write_program,
)
from tests.analysis.synthetic import METHOD


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Runs of a deck and of half of it."""
    return programs(tmp_path_factory.mktemp("study"))


@pytest.fixture
def calibration():
    """Of two ranks, without noise."""
    return calibrated()


def given(study, calibration, ranks=(1, 2), orderings=("own", "direct", "ring")):
    """A search over orderings and ranks."""
    found = strategies.strategies(["ordering", "ranks"], ranks, ["none"], orderings)
    return found, strategies.search(
        found,
        lambda s: predict(targeted(study, s.ranks, {}, s.guarantee, s.reduction, calibration), calibration),
        lambda size: calibration,
        lambda answer: answer.prediction.median,
    )


def test_guarantees_have_prices_by_replays_that_share_their_draws(tmp_path, capsys):
    runs = [
        str(write_program(tmp_path / f"{level}-{n}", n, ms=ms, guarantee=level))
        for level, ms in (("layout", 6.0), ("none", 2.0))
        for n in (128, 64)
    ]
    assert main(["predict", *runs, "--ranks", "1", "--set", "grid.n=128", "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert [row["guarantee"] for row in tables["predictions"]] == ["none", "layout"]
    (price,) = tables["prices"]
    assert (price["guarantee"], price["weakest"], price["told"]) == ("layout", "none", True)
    # The rate of the machine is the same in both: its spread of 5 % is not in the price.
    assert price["price"] == pytest.approx(20.3 / 8.3, rel=1e-6)
    assert price["low"] == pytest.approx(price["price"]) == price["high"]


def test_a_guarantee_without_a_run_is_priced_where_only_reductions_differ(tmp_path, calibration):
    stated = {"sum": REDUCTION | {"guarantee": "layout"}}
    run = skeleton(write_program(tmp_path / "run", guarantee="layout", reductions=stated))
    facts = calibration.reductions["direct"]
    exact = facts | {"guarantee": "exact", "accumulation": "exact", "region": "allreduce.exact:together"}
    more = calibration.cases.iloc[[0]].assign(region="allreduce.exact:together", seconds=3e-4)
    known = replace(
        calibration,
        cases=pd.concat([calibration.cases, more], ignore_index=True),
        reductions={"direct": facts | {"guarantee": "run"}, "exact": exact},
    )
    assert offered(known) == {"direct": "run", "direct in exact": "exact"}
    moved = targeted([run], 2, {}, "exact", None, known)
    assert (moved.guarantee, moved.reduction) == ("exact", "direct in exact")
    assert moved.method == method_hash(run.attributes | {"method": METHOD | {"run.guarantee": "exact"}})
    assert "guarantee exact, without a run under it" in moved.extrapolated
    own = targeted([run], 2, {}, "layout", None, known)
    (price,) = prices([predict(each, known) for each in (moved, own)]).to_dict("records")
    # Alone a sum takes no time that the calibration knows, so that 300 us take the place of 50 us, three times.
    assert price["price"] == pytest.approx(1 + 3 * 0.25 / (4.2 * 0.5 + 3.05), rel=0.2)
    assert price["low"] <= price["price"] <= price["high"] and price["told"]
    with pytest.raises(Unreachable, match="record a run on one rank with --guarantee run"):
        targeted([run], 2, {}, "run", None, known)
    with pytest.raises(Unreachable, match="promises run, less than --guarantee exact"):
        targeted([run], 2, {}, "exact", "direct", known)


def test_runs_of_guarantees_that_differ_in_more_have_no_price(study):
    method = study[1].attributes["method"] | {"run.guarantee": "layout", "run.device": "gpu"}
    other = {**study[1].attributes, "guarantee": "layout", "method": method}
    with pytest.raises(Unreachable, match="differ in other options, too"):
        levels([study[0], replace(study[1], attributes=other)])


def test_every_strategy_is_replayed_or_listed_with_its_reason(study, calibration):
    every, found = given(study, calibration)
    assert found.replayed + len(found.infeasible) == len(every) == 6
    assert found.infeasible["reason"].value_counts().to_dict() == {
        "on one rank every ordering is the same as --ordering own": 2, "ring was not calibrated": 1,
    }  # fmt: skip
    assert found.table["seconds"].is_monotonic_increasing and found.table["seconds"].min() < 6e-3
    # Two ranks by `direct` are the run's own reduction: the same replays, and nothing tells them apart.
    assert found.table[["ranks", "told"]].values.tolist() == [[2, False], [2, False], [1, True]]
    assert found.alike == 1 and found.table["slower"].tolist() == [0.0, 0.0, 1.0]
    assert [each.prediction.ranks for each in found.own] == [1, 2]


def test_the_best_strategy_is_that_of_all_predictions(study, calibration):
    _, found = given(study, calibration, range(1, 9), ["own"])
    medians = {p: predict(target(study, p, {}), calibration).prediction.median for p in range(1, 9)}
    assert found.table["ranks"].tolist() == sorted(medians, key=medians.get)
    assert found.table["seconds"].tolist() == pytest.approx(sorted(medians.values()))


def test_an_ordering_that_promises_less_is_no_strategy(calibration):
    stated = {"direct": calibration.reductions["direct"] | {"guarantee": "run"}}
    weak = strategies.Strategy("layout", 2, "direct")
    known = replace(calibration, reductions=stated)
    assert strategies.infeasible(weak, known) == "direct promises run, which is less than layout"
    assert strategies.infeasible(replace(weak, guarantee="run"), known) == ""
    assert strategies.infeasible(replace(weak, guarantee="run", ranks=4), known) == ""


def test_too_many_strategies_and_open_choices_are_refused():
    with pytest.raises(Unreachable, match="102,400 strategies, more than the 100,000 that are replayed"):
        strategies.strategies(["ordering", "ranks"], range(1, 1025), ["none"], list(map(str, range(100))))
    with pytest.raises(Unreachable, match="several choices of ranks"):
        strategies.strategies(["ordering"], [1, 2], ["none"], ["own"])


def test_the_command_searches(tmp_path, capsys):
    runs = [
        str(write_program(tmp_path / level, guarantee=level, ms=ms))
        for level, ms in (("none", 2), ("layout", 3))
    ]
    ledger = tmp_path / "ledger.jsonl"
    more = ["--search", "ranks,guarantee,ordering", "--ranks", "1,2", "--ledger", str(ledger)]
    assert main(["predict", *runs, *more, "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    assert [(row["guarantee"], row["told"]) for row in tables["strategies"]] == [
        ("none", False),
        ("layout", True),
    ]
    assert [row["ranks"] for row in tables["infeasible"]] == [2, 2]
    assert all(
        "messages have no price without a calibration" in row["reason"] for row in tables["infeasible"]
    )
    assert [row["guarantee"] for row in tables["prices"]] == ["layout"]
    assert len(read_ledger(ledger).rows) == 2
    assert main(["predict", *runs, *more]) == 0
    assert "2 strategies cannot be predicted" in capsys.readouterr().out.replace("\n", " ")
    for other in ("wire", "mesh", "threads"):
        assert main(["predict", *runs, "--search", other]) == 2
        said = f"--search {other}: cannot be searched; there are: ordering, ranks, guarantee"
        assert said in capsys.readouterr().err
