"""`--json`: one strict document with the keys that commands declare, and nothing else on standard output."""

from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS, main
from analysis.commands.answer import KEYS, SCHEMA
from analysis.verdict import MEANING
from kernels.as_json import COMMON
from tests.analysis.json_runs import command_lines, write_all
from tests.analysis.synthetic import write_run
from tests.declared import check_rows, fits, named, strict
from tools.reference.documents import kind, of_analysis


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("json")
    write_all(root)
    return root


def test_every_command_declares_its_document():
    assert {name.partition(" ")[0] for name in of_analysis()} == set(COMMANDS)
    assert all(f"`{verdict}`" in KEYS["verdict"].meaning for verdict in MEANING)


@pytest.mark.parametrize("name", command_lines(Path(), Path()))
def test_the_document_of_each_command_has_the_declared_keys(root, tmp_path, capsys, name):
    argv = [*map(str, command_lines(root, tmp_path)[name]), "--json"]
    code = main(argv)
    printed = capsys.readouterr()
    document = strict(printed.out)
    assert set(document) == {*COMMON, *KEYS}
    assert all(fits(document[key], kind(column)) for key, column in KEYS.items() if key != "tables")
    assert (document["schema"], document["command"], document["exit_code"]) == (SCHEMA, argv[0], code)
    assert code == (3 if name == "divergence" else 0)
    assert (document["verdict"] is not None) == (argv[0] in ("report", "variability", "divergence"))
    known = {rows.name: rows.columns for rows in of_analysis()[name].rows}
    assert {named(table, known) for table in document["tables"]} == set(known)
    for table, rows in document["tables"].items():
        check_rows(rows, known[named(table, known)], table)
    filled = [table for table, rows in document["tables"].items() if rows]
    assert filled == [
        table for table in document["tables"]
        # Calls and what a run lacks are of fpna run, links of three nodes.
        if table not in ("calls", "lacking", "links") and (table != "decisions" or name in ("solves", "learning"))
    ]  # fmt: skip


def test_rows_are_those_of_the_csv_files(root, tmp_path, capsys):
    csv = tmp_path / "tables"
    assert main(["lint", str(root / "pair"), "--json", "--csv", str(csv)]) == 0
    document = strict(capsys.readouterr().out)
    assert document["files"] == [f"{csv}/findings.csv"]
    lines = (csv / "findings.csv").read_text().splitlines()
    assert lines[0] == ",".join(document["tables"]["findings"][0])
    assert len(lines) == 1 + len(document["tables"]["findings"])


@pytest.mark.parametrize("command", COMMANDS)
def test_bad_input_leaves_standard_output_empty(tmp_path, capsys, command):
    argv = [command, *{"export": ["perfetto"], "score": ["nowhere.jsonl"], "ask": ["why"]}.get(command, ())]
    more = ["-o", str(tmp_path / "new")] if command in ("export", "report") else []
    assert main([*argv, str(tmp_path / "nowhere"), *more, "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and "nowhere" in printed.err


def test_no_verdict_is_no_document(tmp_path, capsys):
    write_run(tmp_path / "whole")
    write_run(tmp_path / "short", steps=4)
    argv = ["divergence", str(tmp_path / "whole"), str(tmp_path / "short")]
    assert main([*argv, "--json"]) == 2
    assert capsys.readouterr().out == ""
    assert main(argv) == 2
    assert "cannot be compared" in capsys.readouterr().out


def test_what_was_left_out_is_among_the_problems_and_on_standard_error(tmp_path, capsys):
    write_run(tmp_path / "a")
    damaged = write_run(tmp_path / "b") / "rank-00001.h5"
    damaged.write_bytes(damaged.read_bytes()[:2000])
    assert main(["lint", str(tmp_path), "--json"]) == 0
    printed = capsys.readouterr()
    (first, *_) = strict(printed.out)["problems"]
    assert set(first) == {"run", "what", "path", "reason", "kept"} and first["run"] == "b"
    assert first["reason"] in printed.err


def test_hostile_names_are_written_out(tmp_path, capsys):
    write_run(tmp_path / "a\x1b[31m\x7f\u202e")
    assert main(["show", str(tmp_path), "--json"]) == 0
    (row,) = strict(capsys.readouterr().out)["tables"]["runs"]
    assert row["run"] == "a\\x1b[31m\\x7f\\u202e"
