"""JSON documents of the instruments: declared keys, strict JSON, and the options for more or less output."""

from pathlib import Path

import numpy as np
import pytest

from kernels import as_json
from kernels.__main__ import main
from tests.declared import check, strict

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


@pytest.mark.parametrize("name", LINES)
def test_the_document_has_the_declared_keys(capsys, name):
    check(strict(printed(capsys, name, "--json")), f"kernels {name}")


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
