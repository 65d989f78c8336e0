"""The command that predicts: what it says, appends and refuses."""

import json

import pytest

from analysis.__main__ import main
from miniapps.received.ledger import read_ledger
from tests.analysis.predict_programs import (
    calibrated,
    write_program,
)


@pytest.fixture
def calibration():
    """Of two ranks, without noise."""
    return calibrated()


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
