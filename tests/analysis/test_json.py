"""`--json`: one strict document with the keys that docs/reference/json.md has, and nothing else on standard output."""

import fnmatch
import json
import re
from pathlib import Path

import pytest

from analysis.__main__ import COMMANDS, main
from analysis.commands.answer import SCHEMA
from analysis.studies.documentation import written
from analysis.verdict import MEANING
from tests.analysis.json_runs import command_lines, write_all
from tests.analysis.synthetic import write_run

PAGE = (Path(__file__).resolve().parents[2] / "docs/reference/json.md").read_text()
KINDS = {
    "text": lambda value: isinstance(value, str),
    "integer": lambda value: type(value) is int,
    "number": lambda value: value is None or type(value) in (int, float),
    "boolean": lambda value: isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "objects": lambda value: isinstance(value, dict),
}
ROW = re.compile(r"^\| (`.*?`) \| ([^|]*?) \|", re.MULTILINE)
TABLES = re.compile(r"^(`[^:\n]*`): .*?\n\n(\| column .*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def section(name):
    """The text of one section of the page."""
    text = re.split(rf"^#+ {re.escape(name)}$", PAGE, flags=re.MULTILINE)[1]
    return re.split(r"^## |^### ", text, flags=re.MULTILINE)[0]


def types(table):
    """{key: its type} of one table of the page: the first column names keys, the second their type, with a unit."""
    known = {}
    for keys, kind in ROW.findall(table):
        for key in re.findall("`(.+?)`", keys):
            known[key] = re.sub(", (s|ns|bytes|ULP|GB/s)$", "", kind)
    return known


def tables(name):
    """{table: {column: type}} of the command whose section is `name`."""
    return {
        table: types(columns)
        for heads, columns in TABLES.findall(section(name))
        for table in re.findall("`(.+?)`", heads)
    }


def fits(value, kind):
    """Whether `value` is of that type of the page."""
    if kind.endswith("?"):
        return value is None or fits(value, kind[:-1])
    if kind.startswith("list of "):
        return isinstance(value, list) and all(fits(item, kind.removeprefix("list of ")) for item in value)
    return KINDS[kind](value)


def named(name, known):
    """The pattern among `known` that stands for `name`."""
    return next((pattern for pattern in known if fnmatch.fnmatchcase(name, pattern)), None)


def strict(text):
    """The document, which must have no constants but those of JSON, nothing after it, and no characters but ASCII."""

    def refuse(constant):
        raise AssertionError(constant)

    assert text.isascii() and not set(text) & {chr(c) for c in range(32) if chr(c) != "\n"} | {"\x7f"} & set(
        text
    )
    return json.loads(text, parse_constant=refuse)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("json")
    write_all(root)
    return root


def test_tables_of_studies_are_documented_as_they_are_declared():
    assert written(PAGE) == PAGE


def test_every_command_has_a_section():
    assert all(f"\n### {command}\n" in PAGE for command in COMMANDS)
    assert all(f"`{verdict}`" in PAGE for verdict in MEANING)


@pytest.mark.parametrize("name", command_lines(Path(), Path()))
def test_the_document_of_each_command_has_the_documented_keys(root, tmp_path, capsys, name):
    argv = [*map(str, command_lines(root, tmp_path)[name]), "--json"]
    code = main(argv)
    printed = capsys.readouterr()
    document = strict(printed.out)
    common = types(section("Commands of the analysis").split("The same columns")[0])
    assert list(document) == list(common)
    assert all(fits(document[key], kind) for key, kind in common.items())
    assert (document["schema"], document["command"], document["exit_code"]) == (SCHEMA, argv[0], code)
    assert code == (3 if name == "divergence" else 0)
    assert (document["verdict"] is not None) == (argv[0] in ("report", "variability", "divergence"))
    known = tables(name)
    assert {named(table, known) for table in document["tables"]} == set(known)
    for table, rows in document["tables"].items():
        columns = known[named(table, known)]
        for row in rows:
            wrong = {
                key: value for key, value in row.items() if not fits(value, columns[named(key, columns)])
            }
            assert not wrong, table
        missing = {column for row in rows[:1] for column in columns if not fnmatch.filter(row, column)}
        assert all("alone" in section(name) and columns[column].endswith("?") for column in missing), missing
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
