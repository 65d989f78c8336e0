"""`python -m analysis export`: its files, its output and its errors."""

import json
import shutil
from decimal import Decimal

import pytest

from analysis.__main__ import main
from analysis.export import FORMATS
from tests.analysis.export_runs import EVENTS, STEPS, events_of, part_of, solver_run, traced_run
from tests.analysis.synthetic import flip_bit, write_run


def export(*arguments):
    """The exit code of `export`."""
    return main(["export", *map(str, arguments)])


def instants(path):
    return [
        event
        for event in json.loads(path.read_text(), parse_float=Decimal)["traceEvents"]
        if event["ph"] == "i"
    ]


@pytest.fixture
def run(tmp_path):
    """A run of the solver on two ranks."""
    return solver_run(tmp_path / "run")


@pytest.mark.parametrize("form, wrote", [
    ("perfetto", ["out"]), ("otf2", ["out"]), ("extrap", ["out"]), ("chakra", ["out.0.et", "out.1.et"]),
])  # fmt: skip
def test_each_format_writes_and_says_what_and_nothing_is_written_over(run, tmp_path, capsys, form, wrote):
    if form == "otf2":
        pytest.importorskip("otf2", reason="the package otf2 is not installed")
    out = tmp_path / "new" / "out"
    out.parent.mkdir()
    assert export(form, run, "-o", out) == 0
    assert sorted(path.name for path in out.parent.iterdir()) == wrote
    output = capsys.readouterr().out
    assert f"Written to {out}" in output
    if form != "extrap":
        assert f"{2 * EVENTS} events of ranks 0-1, steps 0-2, {3 * STEPS} collectives" in output
    assert export(form, run, "-o", out) == 2
    assert "exists, and nothing is written over; name another" in capsys.readouterr().err


def test_the_slice_that_is_asked_for_is_written(run, tmp_path, capsys):
    out = tmp_path / "out.json"
    assert export("perfetto", run, "-o", out, "--ranks", "1", "--steps", "0,2", "--repeat", 0) == 0
    assert f"{EVENTS * 2 // 3} events of ranks 1, steps 0, 2," in capsys.readouterr().out
    assert export("perfetto", run, "-o", tmp_path / "cut.json", "--from", "0.000001", "--to", "0.0001") == 0
    assert "cut at the border" in capsys.readouterr().out
    times = [
        event["ts"]
        for event in json.loads((tmp_path / "cut.json").read_text())["traceEvents"]
        if "ts" in event
    ]
    assert min(times) == 1  # microsecond


@pytest.mark.parametrize("arguments, words", [
    (["--ranks", "0-7"], "no rank 2; it has ranks 0-1"),
    (["--steps", "1,9"], "no step 9; it has steps 0-2"),
    (["--repeat", "1"], "no repeat 1; it has repeats 0"),
    (["--from", "2", "--to", "1"], "--to must be later than --from"),
    (["--from", "7"], "none of its events"),
    (["-o", "nowhere/out.json"], "no directory"),
    (["--against", "nothing"], "no such directory"),
])  # fmt: skip
def test_what_cannot_be_exits_with_2_and_leaves_nothing(run, tmp_path, capsys, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert export("perfetto", run, "-o", "out.json", *arguments) == 2
    captured = capsys.readouterr()
    assert words in captured.err and captured.out == ""
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("arguments", [
    ["frobnicate", "run", "-o", "x"], ["perfetto", "run"], ["perfetto", "run", "-o", "x", "--ranks", "3-1"],
    ["perfetto", "run", "-o", "x", "--ranks", "-1"], ["perfetto", "run", "-o", "x", "--steps", "a"],
    ["perfetto", "run", "-o", "x", "--from", "soon"], ["perfetto", "run", "-o", "x", "--to", "nan"],
    ["perfetto", "run", "-o", "x", "--to", "inf"], ["perfetto", "run", "-o", "x", "--to", "1e999999999"],
])  # fmt: skip
def test_usage_errors_say_what_is_known(capsys, arguments):
    with pytest.raises(SystemExit) as end:
        export(*arguments)
    assert end.value.code == 2
    message = capsys.readouterr().err
    if arguments[0] == "frobnicate":
        assert all(name in message for name in FORMATS)


def test_a_run_without_events_or_with_a_missing_rank_says_so(run, tmp_path, capsys):
    silent = traced_run(tmp_path / "silent", lambda tracer, clock: tracer.value("energy", 1.0))
    assert export("perfetto", silent, "-o", tmp_path / "out") == 2
    assert "no events, as with --trace off; repeat the run with --trace regions" in capsys.readouterr().err
    (run / "rank-00001.h5").unlink()
    assert export("perfetto", run, "-o", tmp_path / "out") == 2
    assert "a run of 2 ranks without rank-00001.h5" in capsys.readouterr().err
    shutil.copy(run / "rank-00000.h5", run / "rank-00001.h5")
    assert export("perfetto", run, "-o", tmp_path / "out") == 2
    assert (
        "rank-00001.h5: the trace of rank 0, not of rank 1 as its name says; copy the"
        in capsys.readouterr().err
    )


def test_one_run_at_a_time_except_for_models(run, tmp_path, capsys):
    solver_run(tmp_path / "more" / "other", size=1)
    assert export("perfetto", run, tmp_path / "more", "-o", tmp_path / "out") == 2
    assert "perfetto takes one run, and these are 2" in capsys.readouterr().err
    assert export("extrap", run, tmp_path / "more", "-o", tmp_path / "out") == 0
    output = capsys.readouterr().out
    assert "2 runs" in output and "of p there are 2: 1, 2" in output


def test_a_run_that_ended_early_is_exported_with_a_word_but_not_modelled(tmp_path, capsys):
    early = write_run(tmp_path / "early", stop={1: 2}, result=False)
    assert export("perfetto", early, "-o", tmp_path / "out.json") == 0
    assert "ended early" in capsys.readouterr().err
    assert export("extrap", early, "-o", tmp_path / "out.jsonl") == 2
    assert "no run reached its end" in capsys.readouterr().err
    whole = write_run(tmp_path / "whole")
    assert export("extrap", early, whole, "-o", tmp_path / "out.jsonl") == 0
    captured = capsys.readouterr()
    assert "left out, since they ended early" in captured.err and "1 run;" in captured.out


def test_a_missing_package_is_named(run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("analysis.commands.export.find_spec", lambda name: None)
    for form, package in (("otf2", "otf2"), ("chakra", "protobuf")):
        assert export(form, run, "-o", tmp_path / "out") == 2
        assert f"needs a package that is not installed: pip install {package}" in capsys.readouterr().err


def test_a_full_disk_is_said(run, tmp_path, capsys, monkeypatch):
    def full(part, out, mark=None):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("analysis.export.perfetto.write", full)
    assert export("perfetto", run, "-o", tmp_path / "out") == 2
    assert "cannot be written: No space left on device; name another place" in capsys.readouterr().err


def differ(repeat, step, field):
    """From step 3 on, one bit of block 8, which rank 1 of 2 owns, is another."""
    if step >= 3:
        flip_bit(field, 8)


def test_the_first_divergence_is_marked_between_the_events_around_its_record(tmp_path, capsys):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", change=differ)
    assert export("perfetto", a, "-o", tmp_path / "out.json", "--against", b) == 0
    output = capsys.readouterr().out
    assert "Marked: a:0 and b:0 part at step 3, vorticity, block 8, on rank 1 at " in output
    [mark] = instants(tmp_path / "out.json")
    events = events_of(part_of(a))
    before = events[
        (events["rank"] == 1) & (events["step"] == 2)
    ]  # one event, which ends after what is recorded
    assert mark["ts"] * 1000 == before["end"].item()
    assert mark["name"] == "first divergence: vorticity" and mark["tid"] == 2
    assert mark["args"] == {"step": 3, "block": 8, "recorded after": "step", "recorded before": "step"}


def test_a_mark_that_has_no_place_is_none_and_says_why(tmp_path, capsys):
    a, b = write_run(tmp_path / "a"), write_run(tmp_path / "b", change=differ)
    out = [tmp_path / f"{i}.json" for i in range(3)]
    assert export("perfetto", a, "-o", out[0], "--against", b, "--ranks", 0) == 0
    assert "which is not in the slice" in capsys.readouterr().out
    assert export("perfetto", a, "-o", out[1], "--against", write_run(tmp_path / "c")) == 0
    assert "No mark: a:0 and c:0 are equal" in capsys.readouterr().out
    assert instants(out[0]) == instants(out[1]) == []
    assert export("perfetto", a, "-o", out[2], "--against", a) == 2
    assert "is the run itself" in capsys.readouterr().err
    assert export("extrap", a, "-o", out[2], "--against", b) == 2
