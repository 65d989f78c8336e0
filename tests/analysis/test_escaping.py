"""Names and texts of untrusted runs appear as text in terminals, tables and pages, without control characters."""

import io
import json
import os
import re
import sys
import unicodedata
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from analysis.__main__ import main
from analysis.export.tables import FORMULA, csv_text, distinct
from miniapps.untrusted.text import HIDDEN
from tests.analysis.solves_runs import FALLING, solve, write_solves
from tests.analysis.sums_runs import write_sums
from tests.analysis.synthetic import flip_bit, write_result, write_run, write_timed

# ESC and its 8-bit form, BEL, CR, LF, an override of the direction of writing, half of a pair, markup, a formula.
TEXT = "=cmd|'/C calc'!A0\r\n=1\x1b[31m\x9b1m\x07\u202e\ud800[red]m[/red][link=http://x]l[/link]:boom:;=2<b>"
IN_HDF5 = TEXT.replace("\ud800", "")  # text in HDF5 is UTF-8
DIRECTORY = os.fsdecode(b"=x\xff\x1b[31m\r\n[red]\xe2\x80\xae'; echo y #")
STYLE = re.compile(r"\x1b\[[0-9;]*m")  # colours, which the printer itself gives


def hidden(text: str, keep: str = "\n") -> set[str]:
    """The characters in `text` that a terminal would obey or hide."""
    return {one for one in text if one not in keep and unicodedata.category(one) in HIDDEN}


def call(monkeypatch, *arguments, encoding="utf-8"):
    """(exit code, stdout, stderr) of a command; a character that the streams cannot write is an error."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding=encoding, errors="strict") for _ in range(2)]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", streams[0])
        patch.setattr(sys, "stderr", streams[1])
        code = main([str(argument) for argument in arguments])
    for stream in streams:
        stream.flush()
    return code, *(stream.buffer.getvalue().decode(encoding) for stream in streams)


def another(repeat, step, field):
    """From step 2 on, repeats differ."""
    if step >= 2:
        flip_bit(field, 5, bit=10 + repeat)


def hostile(**more):
    """Attributes that hold TEXT wherever a run can have text."""
    environment = {"mpi": TEXT, "node": TEXT, "variables": {TEXT: TEXT}}
    config = {"run": {"seed": 1, "out": TEXT}, "grid": {TEXT: TEXT, "n": 128}}
    options = {"grid.n": 128, f"grid.{TEXT}": TEXT}
    return {
        "app": IN_HDF5, "problem": IN_HDF5, "ordering": IN_HDF5, "environment": environment, "config": config,
        "problem_options": options, "allocation_id": IN_HDF5, "started": IN_HDF5,
        "method": {"run.device": TEXT, TEXT: TEXT, "orderings": {TEXT: TEXT}},
    } | more  # fmt: skip


def regions(rank, step):
    """Two regions with names that only their ends tell apart."""
    return [(TEXT, 1.0, [(f"allreduce.{TEXT}", 1.0 + rank, [])]), (TEXT.replace("\x1b", "\\x1b"), 2.0, [])]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Runs whose every text is TEXT, below a directory with such a name; one of them ended early."""
    root = tmp_path_factory.mktemp("runs") / DIRECTORY
    for i, size in enumerate((1, 2, 4)):
        write_run(
            root / f"{TEXT.replace('/', '')[:70]}{i}".encode("utf-8", "replace").decode(), size=size, repeats=2,
            change=another if i else None, names=(TEXT, f"{TEXT}2"), run_id=f"{IN_HDF5}{i}",
            orders=lambda repeat, step, size=size: [np.roll(np.arange(size), step)],
            **{key: value for key, value in hostile().items() if key not in ("ordering", "method")},
            ordering=IN_HDF5, method=hostile()["method"],
        )  # fmt: skip
    for i, size in enumerate((1, 2, 4, 8)):
        write_timed(root / f"timed{i}", regions, size=size, steps=3, run_id=f"timed{i}", **hostile())
    early = write_run(root / "early", **hostile(), run_id="early", complete=False, result=False)
    write_result(early, status="failed", exit_code=1, error=TEXT, checks=[
        {"name": TEXT, "passed": False, "detail": TEXT, "repeat": 0}])  # fmt: skip
    (early / "rank-00001.h5").unlink()
    texts = {
        key: value for key, value in hostile().items() if key not in ("app", "config", "ordering", "method")
    }
    values = {
        f"sum:spa:{TEXT.replace(':', '')}:100": [[1.0, 1.5, 1.0, 2.0]],
        "sum:exact:native:100": [[1.0] * 4],
    }
    write_sums(root / "sums", values, times={name: [1.0] * 4 for name in values}, **texts, ordering=IN_HDF5,
               run_id="sums")  # fmt: skip
    for i in range(2):
        write_solves(
            root / f"solve{i}", [solve(FALLING, error=FALLING * (1 + i * 1e-3))] * 2, kind=TEXT,
            method={TEXT: TEXT}, run_id=f"solve{i}", ordering=IN_HDF5,
            **{key: value for key, value in texts.items() if key != "problem"},
        )  # fmt: skip
    return root


def of(runs, command, out):
    """The arguments that give `command` something to say of `runs`."""
    few = [
        run
        for run in sorted(runs.iterdir())
        if run.name.endswith(("0", "1")) and not run.name.startswith("timed")
    ]
    return {
        "report": [runs / "timed1", runs / "early", *few, "-o", out / "r.html", "--results", out / "results"],
        "variability": [runs, "--csv", out],
        "divergence": [next(run for run in sorted(runs.iterdir()) if run.name.endswith("1"))],
        "growth": [runs, "--csv", out],
        "components": [runs, "--csv", out],
        "sums": [runs, "--csv", out],
        "solves": [runs, "--csv", out],
        "scaling": [runs, "--csv", out],
        "nodes": [runs, "--csv", out],
        "lint": [runs, "--csv", out],
        "show": [runs],
        "ask": [TEXT, *few],
        "perfetto": [runs / "timed1", "-o", out / "a.json", "--steps", "0-1"],
        "extrap": [runs / "timed0", runs / "timed1", "-o", out / "a.jsonl"],
        "chakra": [runs / "timed1", "-o", out / "a"],
        "otf2": [runs / "timed1", "-o", out / "a"],
    }[command]


COMMANDS = ["report", "variability", "divergence", "growth", "components", "sums", "solves", "scaling", "nodes",
            "lint", "show", "ask"]  # fmt: skip
FORMATS = ["perfetto", "extrap", "chakra", "otf2"]


@pytest.mark.parametrize("command", COMMANDS[1:])
def test_documents_have_no_control_characters_before_and_after_they_are_read(
    runs, command, tmp_path, monkeypatch
):
    argv = of(runs, command, tmp_path)
    argv = argv[: argv.index("--csv")] if "--csv" in argv else argv
    code, out, err = call(monkeypatch, command, *argv, "--json")
    assert code == (3 if command == "divergence" else 0), err
    assert out.isascii() and not hidden(out)
    todo = [json.loads(out)]
    while todo:
        one = todo.pop()
        if isinstance(one, dict | list):
            todo += [*one, *one.values()] if isinstance(one, dict) else one
        else:
            assert not (isinstance(one, str) and hidden(one)), one


@pytest.mark.parametrize(
    "command", [pytest.param(COMMANDS[0], marks=pytest.mark.slow), *COMMANDS[1:], *FORMATS]
)
def test_what_is_printed_and_written_has_no_control_characters(runs, command, tmp_path, monkeypatch):
    words = [command] if command in COMMANDS else ["export", command]
    if command == "otf2":
        pytest.importorskip("otf2")
    code, out, err = call(monkeypatch, *words, *of(runs, command, tmp_path))
    assert code == (3 if command == "divergence" else 0), err
    assert not hidden(out) and not hidden(err)
    assert "\\x1b[31m" in out + err or command in ("extrap", "chakra", "otf2", "perfetto", "growth")
    for path in tmp_path.rglob("*"):
        if path.suffix in (".csv", ".html", ".json", ".jsonl", ".svg"):
            assert not hidden(path.read_text(encoding="utf-8")), path
        if path.suffix == ".csv":
            looks_harmless(path)
    for path in tmp_path.rglob("*.parquet"):
        assert not hidden("".join(map(str, pd.read_parquet(path).to_numpy().ravel())), keep="")


def looks_harmless(path: Path) -> None:
    """No cell of a CSV is a formula, to a spreadsheet that parts cells at commas or at semicolons."""
    frame = pd.read_csv(path, dtype=str, keep_default_na=False)
    texts = [*frame.columns, *(cell for name in frame for cell in frame[name])]
    cells = [part for text in texts for part in text.split(";")]
    formulas = [cell for cell in cells if cell.lstrip().startswith(FORMULA) and not number(cell)]
    assert not formulas


def number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("encoding", ["ascii", pytest.param("latin-1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("command", ["variability", "divergence", "show"])
def test_streams_that_cannot_write_every_character_get_escapes(
    runs, command, encoding, tmp_path, monkeypatch
):
    code, out, err = call(monkeypatch, command, *of(runs, command, tmp_path), encoding=encoding)
    assert code == (3 if command == "divergence" else 0), err
    assert not hidden(out) and not hidden(err)


@pytest.mark.parametrize(
    "command", ["divergence", "show", pytest.param("variability", marks=pytest.mark.slow)]
)
def test_a_terminal_gets_colours_and_nothing_else(runs, command, tmp_path, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    _, out, err = call(monkeypatch, command, *of(runs, command, tmp_path))
    assert STYLE.search(out)
    assert not hidden(STYLE.sub("", out)) and not hidden(err)
    assert not re.search(r"\x1b\[[0-9;]*31m", out)  # a name does not choose its colour


@pytest.mark.parametrize("arguments", [
    ["show", f"nowhere{IN_HDF5}"], ["divergence", f"{IN_HDF5}:1", IN_HDF5], ["show", "a", f"--{IN_HDF5}"],
    [IN_HDF5], ["report", "a", "-o", f"{IN_HDF5}/r.html"], ["sums", "a", "--csv", IN_HDF5],
    ["export", "perfetto", "a", "-o", "x", "--ranks", IN_HDF5],
])  # fmt: skip
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_messages_repeat_no_argument_as_it_is(arguments, encoding, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    try:
        code, out, err = call(monkeypatch, *arguments, encoding=encoding)
    except SystemExit as end:  # by argparse
        code, out, err = end.code, "", ""
    assert code == 2
    assert not hidden(out) and not hidden(err)


def test_the_message_of_argparse_is_escaped(capsys):
    with pytest.raises(SystemExit):
        main(["show", "a", f"--{TEXT}"])
    err = capsys.readouterr().err
    assert "\\x1b[31m" in err and not hidden(err)


@pytest.mark.parametrize("text, cell", [
    ("=1", "'=1"), ("\r=1", "\\x0d=1"), ("a\n=1", "a\\x0a=1"), ("  @x", "'  @x"), ("a;=1", "a;'=1"),
    ("\u202e=1", "\\u202e=1"), ("＝1", "'＝1"), ("-1", "'-1"), ("plain; text", "plain; text"), ("\udcff", "\\xff"),
])  # fmt: skip
def test_cells_are_one_line_and_no_formula(text, cell):
    assert csv_text(pd.DataFrame({"a": [text]}, dtype=object)) == f"a\n{cell}\n"
    named = pd.DataFrame([[1.0]], columns=pd.Index([text], dtype=object))
    assert csv_text(named) == f"{cell}\n1.0\n"


def test_names_that_become_alike_stay_apart():
    assert distinct(["a", "b", "a", "a (2)", "a"]) == ["a", "b", "a (2)", "a (2) (2)", "a (3)"]
    frame = pd.DataFrame([[1.0, 2.0]], columns=["\x1b", "\\x1b"])
    assert csv_text(frame) == "\\x1b,\\x1b (2)\n1.0,2.0\n"
