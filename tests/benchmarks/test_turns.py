"""Calls in turn: every one in every round, the first round apart, and what is done is told in between."""

import re
import subprocess
import sys

from benchmarks.harness.launching import ROOT
from benchmarks.harness.turns import in_turn
from kernels import progress


def test_every_variant_is_called_in_every_round_in_another_order_and_the_first_does_not_count():
    called = []
    variants = {name: lambda name=name: called.append(name) or len(called) for name in "abc"}
    results = in_turn(variants, 2)
    assert "".join(called) == "abcbcacab"
    assert results == {"a": [6, 8], "b": [4, 9], "c": [5, 7]}


def test_long_rounds_tell_what_is_done_and_left(monkeypatch, capsys):
    times = iter(range(0, 10**6, 12))
    monkeypatch.setattr(progress.time, "monotonic", lambda: float(next(times)))
    in_turn({"a": int, "b": int}, 1, quiet=True)
    assert capsys.readouterr().err == ""
    in_turn({"a": int, "b": int}, 1)
    lines = capsys.readouterr().err.splitlines()
    assert [re.sub(r"\d+ s.*", "", line) for line in lines] == [
        f"benchmark: round {done}, "
        for done in ("0 of 1, a, 0%", "0 of 1, b, 25%", "1 of 1, b, 50%", "1 of 1, a, 75%")
    ]


def commands():
    """Every `python -m benchmarks...`, and the subcommands of all-reduces."""
    files = [
        path for path in (ROOT / "benchmarks").rglob("*.py") if '__name__ == "__main__"' in path.read_text()
    ]
    names = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__") for path in files
    ]
    return [
        *((name,) for name in names),
        *(("benchmarks.allreduce", part) for part in ("merge", "nodes", "targets")),
    ]


HELP = """
import runpy, sys
for line in sys.stdin.read().splitlines():
    name, *sys.argv[1:] = line.split()
    try:
        runpy.run_module(name, run_name="__main__")
    except SystemExit as ended:
        print(f"{line} ended with {ended.code}", flush=True)
"""


def test_every_benchmark_can_be_quiet():
    asked = [" ".join([*command, "--help"]) for command in commands()]
    called = [sys.executable, "-c", HELP]
    done = subprocess.run(called, input="\n".join(asked), capture_output=True, text=True, cwd=ROOT)
    texts = re.split(r"^(.*) ended with 0\n", done.stdout, flags=re.MULTILINE)
    helps = dict(zip(texts[1::2], texts[::2], strict=False))
    assert list(helps) == asked and len(asked) > 15, done.stderr
    assert [command for command, text in helps.items() if "--quiet" not in text] == []
