"""The instruments for programs: the keys that docs/reference/json.md names, strict JSON, how much is said otherwise."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from kernels import as_json
from kernels.__main__ import main

PAGE = (Path(__file__).parents[2] / "docs/reference/json.md").read_text()
LINKS = str(Path(__file__).parents[2] / "docs/examples/dgx-1.json")
LINES = {
    "allreduce list": [],
    "allreduce tree": ["ring", "-n", "4"],
    "allreduce cost": ["ring", "direct in exact", "-n", "4"],
    "allreduce properties": ["--orderings", "ring", "--dtype", "float64", "--ranks", "1", "--lengths", "5"],
    "allreduce pack": [LINKS],
    "sums list": [],
    "sums tree": ["numpy", "-n", "12"],
    "sums worst": ["--distribution", "normal", "-n", "9"],
    "sums compare": ["--distribution", "normal", "-n", "9"],
    "contract list": [],
    "contract certify": ["--what", "exp", "--variant", "own"],
}


def printed(capsys, name, *more):
    """What a command prints on standard output; it must succeed."""
    assert main([*name.split(), *LINES[name], *more]) == 0
    return capsys.readouterr().out


def strict(text):
    """The document, without constants that JSON does not have."""
    assert text.isascii()
    return json.loads(text, parse_constant=lambda constant: pytest.fail(constant))


def documented(name):
    """(keys of the document, {list: keys of its objects}) as the page has them."""
    row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
    text = re.sub(r"\([^()]*\)", "", row.split("|", 2)[2])
    lists = {}
    for path, keys in re.findall(r"`([\w.]+)\[\]`: ([^;|]*)", text):
        lists[path] = set(re.findall(r"`(\w+)`", keys))
        text = text.replace(keys, "")
    return {
        "schema",
        "command",
        "version",
        *(key.split(".")[0] for key in re.findall(r"`([\w.]+)", text)),
    }, lists


@pytest.mark.parametrize("name", LINES)
def test_the_document_has_the_documented_keys(capsys, name):
    document = strict(printed(capsys, name, "--json"))
    keys, lists = documented(name)
    assert set(document) == keys
    assert (document["schema"], document["command"]) == (1, f"kernels {name}")
    for path, columns in lists.items():
        rows = document
        for part in path.split("."):
            rows = rows[part]
        assert rows and all(columns <= set(row) for row in rows)
        if "..." not in PAGE[PAGE.index(f"| `{name}` |") :].split("\n")[0]:
            assert all(set(row) == columns for row in rows)


@pytest.mark.parametrize("name", LINES)
def test_quiet_is_a_part_and_verbose_is_more(capsys, monkeypatch, name):
    clock = iter(range(10**9))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock) * 1e-6)  # equal times, equal lines
    quiet, plain, verbose = (len(printed(capsys, name, *how)) for how in (["--quiet"], [], ["--verbose"]))
    same = {"sums tree": "verbose", "allreduce properties": "verbose"}  # all is told already
    assert quiet < plain or name in ("allreduce tree", "allreduce cost")
    assert plain < verbose or same.get(name) == "verbose"


def test_bad_usage_leaves_standard_output_empty(capsys):
    assert main(["sums", "tree", "nothing", "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_what_json_does_not_have_is_written_so_that_every_reader_takes_it():
    content = {"n": np.int64(3), "x": np.float32("nan"), "y": [np.inf, np.float64(0.5)], "flag": np.True_}
    assert strict(as_json.text(content)) == {"n": 3, "x": None, "y": [None, 0.5], "flag": True}
    assert as_json.text("\x1b\x7f\u202e\udc80") == '"\\u001b\\u007f\\u202e\\\\udc80"'
