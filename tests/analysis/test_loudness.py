"""`--quiet`, `--verbose` and `--version` of every analysis command, and progress where there is no terminal."""

import re
import time

import pytest

from analysis.__main__ import COMMANDS, main
from analysis.load import watch
from kernels import VERSION, progress
from tests.analysis.synthetic import write_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two equal runs."""
    root = tmp_path_factory.mktemp("runs")
    write_run(root / "a", size=1)
    write_run(root / "b", size=3)
    return root


def told(capsys, *arguments):
    """What a command that succeeds prints on standard output, and on standard error."""
    assert main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr()
    return printed.out, printed.err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_tells_the_version(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--version"])
    assert end.value.code == 0
    assert capsys.readouterr().out == f"{VERSION}\n"


@pytest.mark.usefixtures("undrawn")
def test_quiet_leaves_the_verdict_and_the_tables(runs, tmp_path, capsys):
    full, _ = told(capsys, "report", runs, "-o", tmp_path / "a.html")
    short, wrong = told(capsys, "report", runs, "-o", tmp_path / "a.html", "--quiet")
    assert full.startswith(short) and full.removeprefix(short).startswith("Report: ")
    assert wrong == ""
    full, _ = told(capsys, "divergence", runs / "a", runs / "b")
    short, _ = told(capsys, "divergence", runs / "a", runs / "b", "--quiet")
    assert short == full.splitlines(keepends=True)[0]


def test_verbose_names_every_file_with_its_time_and_the_libraries(runs, capsys):
    out, err = told(capsys, "lint", runs, "--verbose", "--no-cache")
    assert out == told(capsys, "lint", runs)[0]
    assert [
        len(re.findall(rf"^read {runs}/{run}/rank-\d+.h5 in \d+\.\d+ s$", err, re.M)) for run in "ab"
    ] == [1, 3]
    assert len(re.findall(r"^run .*: from traces, [\d.]+ s$", err, re.M)) == 2
    assert re.search(rf"^lint: [\d.]+ s; {VERSION}, python .*pandas .*h5py .*HDF5 ", err, re.M)
    told(capsys, "lint", runs)  # the first load, that leaves a cache
    assert (
        len(
            re.findall(
                r"^run .*: from its cache, [\d.]+ s$", told(capsys, "lint", runs, "--verbose")[1], re.M
            )
        )
        == 2
    )


def test_exports_name_the_runs_that_they_read(runs, tmp_path, capsys):
    _, err = told(capsys, "export", "perfetto", runs / "a", "-o", tmp_path / "a.json", "--verbose")
    assert re.search(rf"^read the events of {runs}/a in [\d.]+ s$", err, re.M)


@pytest.fixture
def slow(monkeypatch):
    """Every look at the clock of progress is six seconds after the one before."""
    times = iter(range(0, 10**6, 6))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(times)))


def test_long_reading_tells_what_is_done_and_left_without_a_terminal(runs, tmp_path, capsys, slow):
    _, err = told(capsys, "report", runs, "-o", tmp_path / "a.html", "--no-cache")
    lines = err.splitlines()
    assert lines and all(
        re.fullmatch(r"analysis: .*(, \d+%| is at work), \d+ s so far(, \d+ s left)?", line) for line in lines
    )
    assert any("read 4 of 4 files, 1 of 2 runs" in line or "read 1 of 4 files" in line for line in lines)
    assert any(re.search(r"part \d+ of \d+ of the report", line) for line in lines)


def test_progress_is_silent_in_short_work_and_with_quiet(runs, capsys, request, monkeypatch):
    monkeypatch.setattr(watch, "FIRST_S", 60.0)  # short, as the machine may be busy
    assert told(capsys, "lint", runs, "--no-cache")[1] == ""
    request.getfixturevalue("slow")
    assert told(capsys, "lint", runs, "--no-cache", "--quiet")[1] == ""


def test_long_work_without_progress_says_that_it_goes_on(capsys, monkeypatch):
    monkeypatch.setattr(watch, "FIRST_S", 0.1)
    monkeypatch.setattr(watch, "LINE_S", 0.3)
    monkeypatch.setattr(progress.Progress, "last", 0.0)
    with watch.at_work("growth", quiet=True):
        time.sleep(0.3)
    assert capsys.readouterr().err == ""
    with watch.at_work("growth", quiet=False):
        deadline = time.monotonic() + 30
        while (said := capsys.readouterr().err) == "" and time.monotonic() < deadline:
            time.sleep(0.05)
        assert said == "analysis: growth is at work, 0 s so far\n"
        monkeypatch.setattr(progress, "LINE_S", 0.0)
        shown = progress.Progress("analysis", first=0.0)
        for _ in range(10):  # a Watch says more
            shown.show(0.5, "step 1/2")
            time.sleep(0.05)
        assert "at work" not in capsys.readouterr().err
