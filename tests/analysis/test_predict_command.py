"""From traces to predictions: programs of runs, targets, and what the command refuses."""

import json
from dataclasses import replace
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.predict import calibration as calibrations
from analysis.predict import strategies
from analysis.predict.machines import machine_of
from analysis.predict.model import memory_bound, predict
from analysis.predict.orderings import offered
from analysis.predict.prediction import method_hash
from analysis.predict.prices import levels, prices, targeted
from analysis.predict.skeleton import skeleton
from analysis.predict.target import Unreachable, target
from miniapps.received.ledger import read_ledger
from miniapps.trace import TraceError, Tracer
from miniapps.trace.head import problem_hash
from miniapps.trace.schema import COLLECTIVE, OTHER, rank_file
from tests.analysis.predict_runs import write_steps
from tests.analysis.synthetic import METHOD, Clock, attributes, write_result

STEPS, CALLS = 6, 3
OPTIONS = {
    key: {"effect": effect, "records": [], "of_ranks": False}
    for key, effect in (("grid.n", "size"), ("run.guarantee", "reduction"))
}
REDUCTION = {
    "ordering": "direct",
    "region": "allreduce.sum",
    "shape": [1],
    "dtype": "float64",
    "contributions": 8,
}


def write_program(
    out,
    n=128,
    ms=2.0,
    fixed=0.5,
    stolen=(),
    unseen=(),
    once=0.0,
    size=1,
    guarantee="none",
    calls=None,
    nbytes=0,
    **more,
):
    """A run of STEPS steps of CALLS sums: before each, `fixed` ms and `ms` ms for every 128 of n / size; after the last
    the fixed part. With `calls` so many sums, which the run says are iterations. `stolen` {(step, call): ms} are
    taken by others, before that sum. The work before a sum states `nbytes`. `unseen` {step: ms}
    are worked before the first event of a step. The first sum waits for `once` ms more."""
    out.mkdir(parents=True)
    problem = {"grid.n": n, "run.seed": 1}
    known = {"run_id": str(out), "config": {"grid": {"n": n}, "run": {"seed": 1}}, "options": OPTIONS,
             "problem_options": problem, "problem": problem_hash("coupled", problem),
             "reductions": {"sum": REDUCTION}, "method": METHOD | {"run.guarantee": guarantee}}  # fmt: skip
    for rank in range(size):
        clock = Clock()
        with mock.patch("time.perf_counter_ns", clock):
            given = attributes(rank, size, guarantee, "direct", **(known | more))
            tracer = Tracer(out / rank_file(rank), given, size=size)
            work, sums, whole = (
                tracer.name(*each) for each in (("work",), ("allreduce.sum", COLLECTIVE), ("step", OTHER))
            )
            for step in range(1, STEPS + 1):
                tracer.at(0, step)
                begun, lost = clock.now, 0.0
                clock.spend(dict(unseen).get(step, 0.0))
                begin = clock.now
                for call in range(calls or CALLS):
                    start = clock.now
                    taken = dict(stolen).get((step, call), 0.0)
                    clock.spend(fixed + ms * n / 128 / size + taken + once * (step == 1 and call == 0))
                    lost += taken
                    tracer.event(work, start, nbytes)
                    start = clock.now
                    clock.spend(0.1)
                    tracer.event(sums, start, 8)
                start = clock.now
                clock.spend(fixed)
                tracer.event(work, start)
                tracer.event(whole, begin)
                if calls and rank == 0:
                    tracer.value("cg_iterations", calls)
                for name in ("cpu_time", "cpu"):
                    tracer.usage(name, step, (clock.now - begun) / 1e9 - lost / 1e3)
            tracer.close()
    write_result(out)
    return out


def of_kind(run, key):
    """ms of the segments of one key, of the first step and of others."""
    return (run.segments.loc[[each[:3] == key for each in run.segments["key"]], "ns"] / 1e6).tolist()


def test_a_step_is_segments_between_waits(tmp_path):
    run = skeleton(write_program(tmp_path / "run"))
    assert (run.size, run.work, run.blocks, len(run.steps)) == (1, 128, 8, STEPS)
    assert run.waits["name"].tolist() == ["allreduce.sum"] * STEPS * CALLS
    assert of_kind(run, ("", "allreduce.sum", "work")) == pytest.approx([2.5] * STEPS)
    assert of_kind(run, ("allreduce.sum", "allreduce.sum", "work")) == pytest.approx(
        [2.5] * STEPS * (CALLS - 1)
    )
    assert of_kind(run, ("allreduce.sum", "", "work")) == pytest.approx([0.5] * STEPS)
    assert of_kind(run, ("allreduce.sum",) * 3) == pytest.approx([0.1] * STEPS * CALLS)
    assert run.cpu_s == pytest.approx(run.wall_s) == pytest.approx(8.3e-3)


def test_what_is_done_once_is_a_cost_of_the_first_step(tmp_path):
    """Loading a library in the first step moves neither the others nor how far these lie apart."""
    runs = [skeleton(write_program(tmp_path / f"n{n}", n=n, once=500.0)) for n in (128, 64)]
    answer = predict(target(runs, 1, {"grid.n": "96"}), None, clock="wall")
    steady = predict(target([skeleton(write_program(tmp_path / f"s{n}", n=n)) for n in (128, 64)], 1,
                            {"grid.n": "96"}), None, clock="wall")  # fmt: skip
    more = answer.prediction.median - steady.prediction.median
    assert more == pytest.approx(0.5 / STEPS, rel=0.1)  # the rate of the machine is drawn by the run's hash
    widths = [np.ptp(np.log(each.prediction.interval)) for each in (answer, steady)]
    assert widths[0] == pytest.approx(widths[1], rel=0.1)


def test_what_others_took_is_taken_from_the_segments_that_took_longer(tmp_path):
    stolen = {(2, 1): 30.0, (4, 0): 5.0, (4, 2): 12.0}
    run = skeleton(write_program(tmp_path / "run", stolen=stolen.items()))
    assert of_kind(run, ("", "allreduce.sum", "work")) == pytest.approx([2.5] * STEPS)
    assert of_kind(run, ("allreduce.sum", "allreduce.sum", "work")) == pytest.approx(
        [2.5] * STEPS * (CALLS - 1)
    )
    assert run.segments["ns"].sum() / 1e9 == pytest.approx(STEPS * run.cpu_s)


def test_work_before_the_first_event_of_a_step_was_not_taken_by_others(tmp_path):
    run = skeleton(write_program(tmp_path / "run", unseen={3: 20.0}.items(), stolen={(2, 1): 30.0}.items()))
    assert run.segments["ns"].sum() / 1e9 == pytest.approx(STEPS * run.cpu_s)
    assert of_kind(run, ("allreduce.sum", "allreduce.sum", "work")) == pytest.approx(
        [2.5] * STEPS * (CALLS - 1)
    )
    assert sorted(of_kind(run, ("allreduce.sum", "", "(no region)"))) == pytest.approx([20.0])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Runs of a deck and of half of it."""
    place = tmp_path_factory.mktemp("study")
    return [skeleton(write_program(place / str(n), n)) for n in (128, 64)]


@pytest.fixture
def calibration():
    """On two ranks, without noise: a sum takes 50 us more than its ranks do alone."""
    rows = [
        {"region": f"allreduce.direct:{where}", "seconds": s, "length": 1.0, "ranks": p, "flops": 0, "spread": np.nan,
         "messages": p - 1, "bytes": 8.0 * (p - 1), "additions": p - 1.0, "messages:4": 3, "bytes:4": 24,
         "additions:4": 3}
        for where, s, p in (("together", 6e-5, 2), ("alone", 1e-5, 1))
    ]  # fmt: skip
    reductions = {
        "direct": {"region": "allreduce.direct:together", "ordering": "direct", "accumulation": "working"}
    }
    return calibrations.Calibration(
        "cal", 2, pd.DataFrame(rows), np.ones((0, 2)), np.zeros(1), 1.0, reductions, {}, "1" * 64
    )


@pytest.mark.parametrize(("ranks", "ms"), [(1, 8.3), (2, 3 * (0.5 + 1.0 + 0.15) + 0.5)])
def test_work_is_shared_and_what_does_not_shrink_stays(study, calibration, ranks, ms):
    answer = predict(target(study, ranks, {}), calibration, replays=400)
    assert answer.prediction.median == pytest.approx(1e-3 * ms, rel=0.01)
    regions = answer.regions.set_index("region")["seconds"]
    assert regions["work"] == pytest.approx(1e-3 * (3 * (0.5 + 2.0 / ranks) + 0.5), rel=1e-6)
    assert (answer.prediction.problem, answer.prediction.ranks) == (study[0].attributes["problem"], ranks)
    assert answer.prediction.traces == (study[0].hash, study[1].hash)


@pytest.mark.parametrize(("ranks", "share"), [(1, 1.0), (2, 0.5), (4, 0.25)])
def test_ranks_take_turns_as_in_the_calibration_or_more(study, calibration, ranks, share):
    """The calibration's two ranks spun on one core, half of which each had: as ranks that had their share anyhow, but
    for messages of four ranks, which take turns as their work does."""
    turning, anyhow = (
        replace(calibration, noise=np.full((300, 2), each), cores=cores)
        for each, cores in ((0.5, 1), (share, None))
    )
    answers = [predict(target(study, ranks, {}), each) for each in (turning, anyhow)]
    walls = [np.median(answer.replays.wall) for answer in answers]
    longer = CALLS * 5e-5 if ranks > 2 else 0.0  # each sum's messages take twice their 50 us
    assert walls[0] - walls[1] == pytest.approx(longer, rel=0.05, abs=1e-12)
    told = [any("messages take turns" in text for text in each.prediction.remarks) for each in answers]
    assert told == [ranks > 2, False]


def test_ranks_with_more_blocks_are_waited_for(study, calibration):
    """Eight blocks on three ranks: 3, 3 and 2 of them."""
    answer = predict(target(study, 3, {}), calibration, replays=400)
    assert answer.prediction.median >= 1e-3 * (3 * (0.5 + 2.0 * 3 / 8) + 0.5)
    assert "all-reduces on 3 ranks, measured on 2" in answer.prediction.extrapolated


def test_a_deck_of_another_size_is_marked_unless_it_was_run(study, calibration):
    known = predict(target(study, 1, {"grid.n": "64"}), calibration).prediction
    assert known.median == pytest.approx(1e-3 * (3 * (0.5 + 1.0 + 0.1) + 0.5), rel=0.01)
    assert not known.extrapolated
    twice = predict(target(study, 1, {"grid.n": "256"}), calibration).prediction
    assert twice.median == pytest.approx(1e-3 * (3 * (0.5 + 4.0 + 0.1) + 0.5), rel=0.01)
    assert twice.extrapolated == ("numbers of iterations",)
    assert twice.problem == problem_hash("coupled", {"grid.n": 256, "run.seed": 1})


def test_an_ordering_is_another_method(study, calibration):
    same, other = (target(study, 2, {}, reduction=each) for each in (None, "direct in exact"))
    assert same.method != other.method
    prediction = predict(other, calibration).prediction
    assert "direct in exact, taken for direct" in prediction.extrapolated


@pytest.mark.parametrize(
    ("size", "settings", "guarantee", "why"),
    [
        (9, {}, None, "8 blocks, and every rank needs one"),
        (1, {"grid.m": "1"}, None, "no option of the problem; there are: grid.n, run.seed"),
        (1, {"grid.n": "many"}, None, "give a value of this type"),
        (1, {"grid.n": "1.5"}, None, "give a value of this type"),
        (1, {"grid.n": "-1"}, None, "give a finite number, above 0"),
        (1, {"grid.n": "1" + 400 * "0"}, None, "give a finite number"),
        (1, {}, "layout", "record one on one rank with --guarantee layout"),
    ],
)
def test_targets_that_the_runs_do_not_lead_to(study, size, settings, guarantee, why):
    with pytest.raises(Unreachable, match=why):
        target(study, size, settings, guarantee)


def test_runs_of_two_methods_do_not_go_together(study):
    other = {**study[1].attributes, "method": study[1].attributes["method"] | {"run.device": "cuda"}}
    with pytest.raises(Unreachable, match="differ in more than"):
        target([study[0], replace(study[1], attributes=other)], 1, {})


def test_a_program_over_a_mesh_is_not_moved_to_another(study):
    meshed = {**study[0].attributes, "method": study[0].attributes["method"] | {"mesh.mesh": "data=1"}}
    with pytest.raises(Unreachable, match="a mesh of 1 ranks"):
        target([replace(study[0], attributes=meshed)], 2, {})


def test_clocks_that_are_not_to_be_trusted(tmp_path):
    back = write_steps(tmp_path / "back", [10.0], jump=2)
    with pytest.raises(TraceError, match="its clock ran backwards"):
        skeleton(back)
    used = Tracer.usage
    with mock.patch.object(
        Tracer, "usage", lambda self, name, step, value: used(self, name, step, float("nan"))
    ):
        nowhere = write_program(tmp_path / "nan")
    with pytest.raises(TraceError, match="a CPU time of nan s"):
        skeleton(nowhere)


def test_a_trace_without_steps_is_refused(tmp_path):
    with mock.patch.object(Tracer, "usage", lambda *given: None):
        run = write_program(tmp_path / "run")
    with pytest.raises(TraceError, match="recorded no steps with times"):
        skeleton(run)


def test_the_command_predicts_and_appends(tmp_path, capsys):
    runs = [str(write_program(tmp_path / "runs" / str(n), n)) for n in (128, 64)]
    ledger = tmp_path / "ledger.jsonl"
    assert (
        main(["predict", *runs, "--ranks", "1", "--set", "grid.n=64", "--ledger", str(ledger), "--json"]) == 0
    )
    answer = json.loads(capsys.readouterr().out)
    (row,) = answer["tables"]["predictions"]
    assert row["p50"] == row["p50_s"] == pytest.approx(5.3e-3, rel=0.02)
    assert [each["region"] for each in answer["tables"]["regions"]] == ["work", "allreduce.sum", "step"][:2]
    assert any("T2, T3 and T4" in note for note in answer["notes"])
    (held,) = read_ledger(ledger).rows
    assert held.prediction.median == row["p50_s"]
    assert held.prediction.clock == "cpu"


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--ranks", "2"], "messages have no price without a calibration"),
        (["--mesh", "data=2"], "not modelled yet"),
        (["--set", "grid"], "give SECTION.NAME=VALUE"),
        (["--machine", "/nowhere.toml"], "--machine /nowhere.toml"),
        (["--calibration", "RUN"], "no calibration; make one"),
        (["--deck", "/nowhere.toml"], "--deck /nowhere.toml"),
        (["--seed", "-1"], "give 0 or more"),
    ],
)
def test_bad_usage_is_a_sentence_and_code_2(tmp_path, capsys, more, why):
    run = str(write_program(tmp_path / "run"))
    assert main(["predict", run, *(run if word == "RUN" else word for word in more)]) == 2
    assert why in capsys.readouterr().err


def test_a_machine_of_the_user(tmp_path, capsys):
    file = tmp_path / "machine.toml"
    run = str(write_program(tmp_path / "run"))
    for text, why in (
        ("gpus = 1", "unknown gpus"),
        ("cores = -1", "give a positive number"),
        ("cores = inf", "give a positive number"),
        ("cores = 1.5", "give a whole number"),
        ("name = 3", "give a text"),
        ("latency = 1e-6", "together"),
        ("cores = ", "machine.toml"),
    ):
        file.write_text(text)
        assert main(["predict", run, "--machine", str(file)]) == 2
        assert why in capsys.readouterr().err


def test_what_if_the_cores_were_faster(tmp_path, capsys):
    run = str(write_program(tmp_path / "run"))
    twice, half = tmp_path / "twice.toml", tmp_path / "half.toml"
    twice.write_text("speed = 2")
    half.write_text('name = "old one"\nspeed = 0.5')
    machines = ["--machine", str(twice), "--machine", str(half)]
    assert main(["predict", run, *machines, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tables"]["what_if"]
    assert [row["machine"] for row in rows] == ["as calibrated", "twice", "old one"]
    assert [row["ratio"] for row in rows] == pytest.approx([1.0, 0.5, 2.0])
    assert rows[0]["extrapolated"] == "" and rows[1]["extrapolated"] == "cores of 2 times the speed"
    ledger = tmp_path / "ledger.jsonl"
    ledger.touch()
    assert main(["predict", run, *machines, "--ledger", str(ledger)]) == 2
    assert "--ledger: is of one machine" in capsys.readouterr().err
    assert main(["predict", run, *machines[:2], "--ledger", str(ledger)]) == 0
    assert [row.prediction.extrapolated for row in read_ledger(ledger).rows] == [
        ("cores of 2 times the speed",)
    ]
    assert main(["predict", run, *machines[:2], "--machine", str(twice)]) == 2
    assert "two are called twice" in capsys.readouterr().err


@pytest.fixture
def with_memory(calibration):
    """The same, and a gigabyte each second to memory and back, in caches a hundred."""
    rows = [
        {"region": f"memory.{which}", "seconds": 1e-3 * n / 1e6, "length": float(n), "nbytes": nbytes * n, "flops": 0}
        for which in ("copy", "triad")
        for n, nbytes in ((1000, 100.0), (1_000_000, 1.0))
    ]  # fmt: skip
    return replace(calibration, cases=pd.concat([calibration.cases, pd.DataFrame(rows)], ignore_index=True))


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        ({"speed": 2}, 3.75 + 4.55 / 2),  # of 8.3 ms, 3.75 follow memory
        ({"memory": 2e9}, 3.75 / 2 + 4.55),
        ({"speed": 2, "memory": 2e9}, 8.3 / 2),
        ({"speed": 2, "memory": 5e8}, 3.75 * 2 + 4.55 / 2),
    ],
)
def test_what_memory_takes_follows_memory_and_the_rest_the_cores(tmp_path, with_memory, given, ms):
    run = skeleton(write_program(tmp_path / "run", nbytes=1_250_000))
    assert with_memory.memory == pytest.approx(1e9)
    moved = predict(target([run], 1, {}), with_memory, machine=machine_of(given, "other"))
    own = predict(target([run], 1, {}), with_memory)
    assert moved.prediction.median / own.prediction.median == pytest.approx(ms / 8.3, rel=1e-3)
    assert len(moved.prediction.extrapolated) == len(given)
    assert any("45% follows memory" in each and "have 10%" in each for each in moved.prediction.remarks)
    assert not any("follows memory" in each for each in own.prediction.remarks)


def test_more_bytes_than_fit_into_its_time_are_all_of_it(tmp_path, with_memory):
    run = skeleton(write_program(tmp_path / "run", nbytes=10**9))
    bound, silent, waiting = memory_bound(run, with_memory.memory)
    assert bound["allreduce.sum", "allreduce.sum", "work", False] == 1.0
    assert (silent, waiting) == (pytest.approx(0.8 / 8.3), pytest.approx(7.5 / 8.3))
    assert set(memory_bound(run, float("nan"))[0].values()) == {0.0}


def test_another_memory_is_said_to_change_nothing_where_no_region_states_bytes(tmp_path, with_memory):
    run = target([skeleton(write_program(tmp_path / "run"))], 1, {})
    moved = predict(run, with_memory, machine=machine_of({"memory": 4e9}, "other")).prediction
    assert moved.quantiles == predict(run, with_memory).prediction.quantiles
    assert moved.extrapolated == (
        "memory of 4e+09 bytes/s of a core, which changes nothing: no region states its bytes",
    )


def test_memory_of_a_machine_needs_a_calibration_of_memory(tmp_path, calibration, capsys, monkeypatch):
    run, file = str(write_program(tmp_path / "run")), tmp_path / "fast.toml"
    file.write_text("memory = 4e10")
    assert main(["predict", run, "--machine", str(file)]) == 2
    assert "there is no calibration; calibrate all (python -m miniapps.calibrate" in capsys.readouterr().err
    monkeypatch.setattr(calibrations, "read_calibration", lambda path: calibration)
    for command in (
        ["predict", run, "--any-machine"],
        ["report", run, "--any-machine", "-o", str(tmp_path / "page.html")],
    ):
        assert main([*command, "--calibration", "cal", "--machine", str(file)]) == 2
        assert "cal did not measure it; calibrate all" in capsys.readouterr().err


def test_a_calibration_of_another_machine_is_refused_unless_told(study, calibration):
    found = calibrations.elsewhere(replace(calibration, environment={"cpu": "one"}), {"cpu": "another"})
    assert found == ["cpu: one in the calibration, another in the run"]
    marked = predict(target(study, 2, {}), calibration, elsewhere=found).prediction
    assert "another machine" in marked.extrapolated


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
    assert "guarantee exact, of which no run was given" in moved.extrapolated
    own = targeted([run], 2, {}, "layout", None, known)
    (price,) = prices([predict(each, known) for each in (moved, own)]).to_dict("records")
    # Alone a sum takes no time that the calibration knows, so that 300 us take the place of 50 us, three times.
    assert price["price"] == pytest.approx(1 + 3 * 0.25 / (4.2 * 0.5 + 3.05), rel=0.2)
    assert price["low"] <= price["price"] <= price["high"] and price["told"]
    with pytest.raises(Unreachable, match="record one on one rank with --guarantee run"):
        targeted([run], 2, {}, "run", None, known)
    with pytest.raises(Unreachable, match="promises run, and exact is asked for"):
        targeted([run], 2, {}, "exact", "direct", known)


def test_runs_of_guarantees_that_differ_in_more_have_no_price(study):
    method = study[1].attributes["method"] | {"run.guarantee": "layout", "run.device": "gpu"}
    other = {**study[1].attributes, "guarantee": "layout", "method": method}
    with pytest.raises(Unreachable, match="differ in more than these"):
        levels([study[0], replace(study[1], attributes=other)])


def given(study, calibration, ranks=(1, 2), orderings=("own", "direct", "ring")):
    """A search over orderings and ranks."""
    found = strategies.strategies(study, ["ordering", "ranks"], ranks, ["none"], orderings)
    return found, strategies.search(
        found,
        lambda s: predict(
            targeted(s.of(study), s.ranks, {}, s.guarantee, s.reduction, calibration), calibration
        ),
        lambda size: calibration,
        lambda answer: answer.prediction.median,
    )


def test_every_strategy_is_replayed_or_listed_with_its_reason(study, calibration):
    every, found = given(study, calibration)
    assert found.replayed + len(found.infeasible) == len(every) == 6
    assert found.infeasible["reason"].value_counts().to_dict() == {
        "on one rank every ordering is that of --ordering own": 2, "ring was not calibrated": 1,
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
    weak = strategies.Strategy("layout", 2, "direct", 1, "")
    known = replace(calibration, reductions=stated)
    assert strategies.infeasible(weak, known) == "direct promises run, which is less than layout"
    assert strategies.infeasible(replace(weak, guarantee="run"), known) == ""
    assert strategies.infeasible(replace(weak, guarantee="run", ranks=4), known) == ""


def test_too_many_strategies_and_open_choices_are_refused(study):
    with pytest.raises(Unreachable, match="102,400 strategies, and each is replayed, at most 100,000"):
        strategies.strategies(
            study, ["ordering", "ranks"], range(1, 1025), ["none"], list(map(str, range(100)))
        )
    with pytest.raises(Unreachable, match="several choices of ranks"):
        strategies.strategies(study, ["ordering"], [1, 2], ["none"], ["own"])


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
    assert main(["predict", *runs, "--search", "wire"]) == 2
    assert "--search wire: cannot be searched; there are: ordering, ranks" in capsys.readouterr().err


def test_the_report_says_what_if_where_it_is_given_a_calibration(tmp_path, calibration, capsys, monkeypatch):
    run = str(write_program(tmp_path / "run"))
    both, file, page = (
        write_program(tmp_path / "two", size=2),
        tmp_path / "<b>.toml",
        tmp_path / "report.html",
    )
    file.write_text("speed = 2")
    monkeypatch.setattr(calibrations, "read_calibration", lambda path: calibration)
    given = ["--calibration", "cal", "--machine", str(file), "-o", str(page)]
    assert main(["report", run, str(both), *given]) == 0
    html = page.read_text()
    assert (
        "What other machines would take" not in html and "left out" in html and "with --any-machine" in html
    )
    options = [*given, "--any-machine"]
    assert main(["report", run, str(both), *options]) == 0
    html = page.read_text()
    assert "What other machines would take" in html and "cores of 2 times the speed" in html
    assert "another machine" in html
    assert "as calibrated, &lt;b&gt;: 0.5" in html
    assert "&lt;b&gt;" in html and "<b>.toml" not in html and ">as calibrated<" in html
    assert main(["report", str(both), *options]) == 0
    assert "no run on one rank was given" in page.read_text()
    assert main(["report", run, "-o", str(page)]) == 0
    assert "What if" not in page.read_text()
    assert main(["report", run, "--machine", str(file), "-o", str(page)]) == 2
    assert "give --calibration, too" in capsys.readouterr().err
