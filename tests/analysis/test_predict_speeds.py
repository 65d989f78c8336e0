"""Predictions for other speeds of cores, memory and network."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.predict.costs.machines import machine_of
from analysis.predict.costs.speeds import memory_bound
from analysis.predict.reading import launches
from analysis.predict.reading.skeleton import skeleton
from analysis.predict.simulation.model import predict
from analysis.predict.simulation.target import target
from miniapps.untrusted.ledger import read_ledger
from tests.analysis.predict_programs import (
    calibrated,
    write_program,
)


@pytest.fixture
def calibration():
    """Of two ranks, without noise."""
    return calibrated()


@pytest.fixture
def with_memory(calibration):
    """The same, and a gigabyte each second to memory and back."""
    rows = [
        {"region": f"memory.{which}", "seconds": 1e-3, "nbytes": 1e6, "flops": 0}
        for which in ("copy", "triad")
    ]
    return replace(calibration, cases=pd.concat([calibration.cases, pd.DataFrame(rows)], ignore_index=True))


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
    assert any("45% of the work time" in each and "10% is in" in each for each in moved.prediction.remarks)
    assert not any("scales with memory" in each for each in own.prediction.remarks)


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
    assert "there is no calibration; calibrate it (python -m miniapps.calibrate" in capsys.readouterr().err
    monkeypatch.setattr(launches, "read_calibration", lambda path: calibration)
    for command in (
        ["predict", run, "--any-machine"],
        ["report", run, "--any-machine", "-o", str(tmp_path / "page.html")],
    ):
        assert main([*command, "--calibration", "cal", "--machine", str(file)]) == 2
        assert "cal did not measure it; calibrate it" in capsys.readouterr().err


def test_the_report_says_what_if_where_it_is_given_a_calibration(tmp_path, calibration, capsys, monkeypatch):
    run = str(write_program(tmp_path / "run"))
    both, file, page = (
        write_program(tmp_path / "two", size=2),
        tmp_path / "<b>.toml",
        tmp_path / "report.html",
    )
    file.write_text("speed = 2")
    monkeypatch.setattr(launches, "read_calibration", lambda path: calibration)
    given = ["--calibration", "cal", "--machine", str(file), "-o", str(page)]
    assert main(["report", run, str(both), *given]) == 0
    html = page.read_text()
    assert (
        "Predicted times on other machines" not in html
        and "left out" in html
        and "with --any-machine" in html
    )
    options = [*given, "--any-machine"]
    assert main(["report", run, str(both), *options]) == 0
    html = page.read_text()
    assert "Predicted times on other machines" in html and "cores of 2 times the speed" in html
    assert "another machine" in html
    assert " &lt;b&gt;, 0.5" in html
    assert "&lt;b&gt;" in html and "<b>.toml" not in html and ">as calibrated<" in html
    assert main(["report", str(both), *options]) == 0
    assert "no run on one rank was given" in page.read_text()
    assert main(["report", run, "-o", str(page)]) == 0
    assert "What if" not in page.read_text()
    assert main(["report", run, "--machine", str(file), "-o", str(page)]) == 2
    assert "--machine requires --calibration" in capsys.readouterr().err
