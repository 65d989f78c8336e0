"""The demonstration tells what happened, whatever happens: told here by a launcher that makes it happen."""

import json
import sys

import pytest

from miniapps import demo

# Stands for mpirun: prints the state that the test chose for the directory given by --out.
LAUNCHER = """
import json, sys
from pathlib import Path
out = Path(sys.argv[sys.argv.index("--out") + 1])
state = json.loads(Path(__file__).with_name("states.json").read_text())[out.name]
if state == "crash":
    sys.exit("rank 2 ran out of luck")
print("log line")
print(f"FINGERPRINT state={state}" if state else "VERIFICATION: PASS")
"""
RUNS = ("none-1", "none-2", "layout-1-ranks", "layout-2-ranks", "layout-3-ranks", "layout-4-ranks")


@pytest.fixture
def show(tmp_path, monkeypatch, capsys):
    """Run the demonstration over given states; returns (exit code, stdout, stderr, calls of analysis).

    What stands for python only notes its arguments, and ends like an analysis that found a difference."""
    (tmp_path / "mpirun.py").write_text(LAUNCHER)
    mpirun = f"{sys.executable} {tmp_path}/mpirun.py"
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho "what analysis says"\necho "$@" >>{tmp_path}/asked\nexit 3\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))

    def run(*states, more=()):
        (tmp_path / "states.json").write_text(json.dumps(dict(zip(RUNS, states, strict=True))))
        out = str(tmp_path / "out")
        code = demo.main(["--launches", "2", "--out", out, "--mpirun", mpirun, *more])
        asked = (tmp_path / "asked").read_text().splitlines() if (tmp_path / "asked").exists() else []
        return code, *capsys.readouterr(), asked

    return run


def test_runs_that_differ_and_runs_that_agree(show, tmp_path):
    code, out, _, asked = show("aa", "bb", "cc", "cc", "cc", "cc")
    assert code == 0
    assert "without guarantee   2 runs, 2 final states: NOT the same bits" in out
    assert "--guarantee layout  4 runs, 1 final state: the same bits\n" in out
    assert asked == [
        f"-m analysis divergence {tmp_path}/out/none-1 {tmp_path}/out/none-2",
        f"-m analysis report {tmp_path}/out -o {tmp_path}/out/report.html",
    ]
    assert out.count("  what analysis says\n") == 2
    assert out.endswith(f" s in all. Open {tmp_path}/out/report.html in a browser.\n")


def test_quiet_leaves_both_verdicts_and_verbose_has_all_output(show):
    assert show("aa", "bb", "cc", "cc", "cc", "cc", more=["--quiet"])[:3] == (
        0,
        "without guarantee   2 runs, 2 final states: NOT the same bits\n"
        "--guarantee layout  4 runs, 1 final state: the same bits\n",
        "",
    )


def test_verbose_has_all_that_commands_print(show):
    _, out, _, asked = show("aa", "bb", "cc", "cc", "cc", "cc", more=["--verbose"])
    assert out.count("  FINGERPRINT state=cc") == 4
    assert all(line.endswith(" --verbose") for line in asked)


def test_a_broken_promise_is_exit_code_3_and_traced(show, tmp_path):
    code, out, _, asked = show("aa", "aa", "cc", "cc", "dd", "cc")
    assert code == 3
    assert "4 runs, 2 final states: NOT the same bits   THE PROMISE IS BROKEN" in out
    assert asked[0] == f"-m analysis divergence {tmp_path}/out/layout-1-ranks {tmp_path}/out/layout-3-ranks"


def test_agreement_by_chance_is_said(show):
    code, out, _, asked = show("aa", "aa", "cc", "cc", "cc", "cc")
    assert code == 0
    assert "They agree this time by chance" in out
    assert [call.split()[2] for call in asked] == ["report"]


def test_every_command_is_shown_and_counted_before_it_runs(show):
    _, out, _, _ = show("aa", "bb", "crash", "", "", "")
    shown = [line for line in out.splitlines() if "$ " in line]
    assert shown[0].startswith(
        "[1/6] $ mpirun -n 4 python -m miniapps.coupled --guarantee none --allreduce arrival"
    )
    assert shown[-1].startswith("[3/6] $ mpirun -n 1 python -m miniapps.coupled --guarantee layout --out")


def test_a_run_that_fails_ends_it_with_its_last_words(show):
    code, _, err, _ = show("aa", "crash", "", "", "", "")
    assert code == 1
    assert "exit code 1" in err and "  | rank 2 ran out of luck" in err


def test_a_run_without_fingerprint_is_no_agreement(show):
    code, _, err, _ = show("", "", "", "", "", "")
    assert code == 1
    assert "no line 'FINGERPRINT state=...'" in err and "  | VERIFICATION: PASS" in err


def test_a_used_directory_is_left_alone(tmp_path, capsys):
    (tmp_path / "precious").write_text("data")
    assert demo.main(["--out", str(tmp_path)]) == 2
    assert f"--out {tmp_path} is not empty" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_a_launcher_that_does_not_exist(tmp_path, capsys):
    assert demo.main(["--out", str(tmp_path / "o"), "--mpirun", "no-such-mpirun"]) == 2
    assert "no-such-mpirun cannot be run" in capsys.readouterr().err


def test_missing_extras_are_named(monkeypatch, capsys):
    monkeypatch.setattr(demo, "find_spec", lambda name: None)
    assert demo.main([]) == 2
    assert "not installed: torch, pandas, jinja2, matplotlib; install this package with its extras" in (
        capsys.readouterr().err
    )


@pytest.mark.parametrize("launches", ["1", "1000000000000"])
def test_launches_that_compare_nothing_or_never_end_are_refused(launches, capsys):
    with pytest.raises(SystemExit) as end:
        demo.main(["--launches", launches])
    assert end.value.code == 2
    assert f"--launches {launches}: choose 2 to 1000" in capsys.readouterr().err
