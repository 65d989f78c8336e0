"""The prediction command: its output, its ledger rows and its errors."""

import json
from dataclasses import replace

import pytest

from analysis.__main__ import main
from analysis.commands.predict import REST
from miniapps.untrusted.ledger import read_ledger
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
    regions = answer["tables"]["regions"]
    assert [each["region"] for each in regions] == ["work", "allreduce.sum", REST]
    assert {each["clock"] for each in regions} == {"cpu"}
    assert any("T2, T3 and T4" in note for note in answer["notes"])
    (held,) = read_ledger(ledger).rows
    assert held.prediction.median == row["p50_s"]
    assert held.prediction.clock == "cpu"


def test_an_anchor_is_a_text_or_the_hash_of_a_file_and_the_answer_says_which(tmp_path, capsys):
    run, ledger, file = (
        str(write_program(tmp_path / "run")),
        tmp_path / "ledger.jsonl",
        tmp_path / "beacon.txt",
    )
    file.write_bytes(b"abc")
    for given in ("rain on Tuesday", str(file)):
        assert main(["predict", run, "--ranks", "1", "--ledger", str(ledger), "--anchor", given]) == 0
    digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    anchors = ["rain on Tuesday", f"SHA-256 {digest} of beacon.txt"]
    assert [row.anchor for row in read_ledger(ledger).rows] == anchors
    printed = capsys.readouterr().out
    assert all(f"anchor: {anchor}" in " ".join(printed.split()) for anchor in anchors)


@pytest.mark.parametrize("clock", ["cpu", "wall"])
@pytest.mark.parametrize("objective", ["p50", "p90", "mean"])
def test_regions_add_up_to_the_printed_time_of_one_clock_that_is_named(
    tmp_path, calibration, monkeypatch, capsys, clock, objective
):
    monkeypatch.setattr("analysis.predict.reading.launches.read_calibrations", lambda paths: [calibration])
    monkeypatch.setattr("analysis.commands.predict.on_another_machine", lambda *_: ())
    run = write_program(tmp_path / "run", 128, size=2)
    argv = ["predict", str(run), "--calibration", "cal", "--clock", clock, "--objective", objective]
    assert main([*argv, "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)["tables"]
    total = tables["predictions"][0][objective]
    assert sum(each["seconds"] for each in tables["regions"]) == pytest.approx(total)
    assert main(argv) == 0
    printed = capsys.readouterr().out
    assert (
        f"{'CPU' if clock == 'cpu' else 'wall'} time: those of a prediction add up to its {objective}"
        in printed
    )


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (["--ranks", "2"], "messages have no price without a calibration"),
        (["--set", "grid"], "give SECTION.NAME=VALUE"),
        (["--machine", "/nowhere.toml"], "--machine /nowhere.toml"),
        (["--calibration", "RUN"], "not a calibration; make one"),
        (["--deck", "/nowhere.toml"], "--deck /nowhere.toml"),
        (["--seed", "-1"], "give 0 or more"),
        (["--anchor", "a headline"], "give --ledger FILE too"),
        (["--ledger", "new.jsonl", "--anchor", " "], "give a line of 1 to 1000 letters, or a file"),
        (["--ledger", "new.jsonl", "--anchor", "two\nlines"], "give a line of 1 to 1000 letters, or a file"),
        (["--ledger", "new.jsonl", "--anchor", "x" * 5000], "give a line of 1 to 1000 letters, or a file"),
        (["--ledger", "new.jsonl", "--anchor", "/dev"], "--anchor /dev"),
    ],
)
def test_bad_usage_is_a_sentence_and_code_2(tmp_path, capsys, more, why):
    run = str(write_program(tmp_path / "run"))
    assert main(["predict", run, *(run if word == "RUN" else word for word in more)]) == 2
    assert why in capsys.readouterr().err


def test_ranks_that_wait_for_each_other_are_not_predicted_from_a_calibration_of_one(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(
        "analysis.predict.reading.launches.read_calibration", lambda path: replace(calibrated(), size=1)
    )
    run = str(write_program(tmp_path / "run"))
    assert main(["predict", run, "--calibration", "cal", "--any-machine", "--ranks", "2"]) == 2
    error = capsys.readouterr().err
    assert "the calibration has one rank and so no collectives; run `mpirun -n 2 fpna calibrate" in error
    assert main(["predict", run, "--calibration", "cal", "--any-machine", "--ranks", "1"]) == 0
