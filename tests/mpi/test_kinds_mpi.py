"""Ranks of two kinds under real MPI: one line before they compute, at every door, and no plain PASS."""

import json
import sys

import pytest

from analysis.load.frames import load
from analysis.verdict import OUTSIDE, judge
from miniapps.trace import read
from tests.launch import launcher, run_command, run_mpi

SMALL = [
    "-m",
    "miniapps.coupled",
    "--steps",
    "2",
    "--set",
    "grid.nx=64",
    "--set",
    "grid.ny=64",
    "--no-progress",
]
OTHER = "ATEN_CPU_CAPABILITY=default"
TOLD = "ranks of 2 kinds"


def two_kinds(size, argv, library="mpich", setting=OTHER, python=(sys.executable,), timeout=120):
    """Run on `size` ranks, the last half of which have a `setting`."""
    command, env = launcher(library)
    half, own = size // 2, [*python, *argv]
    words = [*command, "-n", size - half, *own, ":", "-n", half, "env", setting, *own]
    return run_command([str(word) for word in words], env, timeout, None)


@pytest.mark.parametrize("library, size", [("mpich", 2), ("mpich", 4), ("openmpi", 2)])
def test_an_application_tells_two_kinds_before_it_computes_and_does_not_just_pass(tmp_path, library, size):
    out = tmp_path / "run"
    run = two_kinds(size, [*SMALL, "--guarantee", "layout", "--out", str(out)], library)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if TOLD in line]
    assert (
        "rank 0 WARNING" in line
        and f"rank{'s 0-1' if size == 4 else ' 0'}: ATEN_CPU_CAPABILITY not set" in line
    )
    assert f"rank{'s 2-3' if size == 4 else ' 1'}: {OTHER}. To make them equal, on all ranks: {OTHER}" in line
    assert "\nVERIFICATION: PASS (ranks of 2 kinds, for which layout promises nothing)\n" in run.stdout
    result = json.loads((out / "result.json").read_text())
    last = {"ranks": "2-3" if size == 4 else "1", "entries": {"variables.ATEN_CPU_CAPABILITY": "default"}}
    assert result["kinds"][1] == last and len(result["kinds"]) == 2
    for rank in range(size):
        assert read(out / f"rank-{rank:05d}.h5").attributes["environment"]["kinds"] == result["kinds"]


def test_analysis_names_the_entry_in_which_ranks_of_one_run_differ(tmp_path):
    for name in "ab":
        two_kinds(2, [*SMALL, "--guarantee", "layout", "--out", str(tmp_path / name)])
    (group,) = judge(load([tmp_path]))
    assert group.verdict == OUTSIDE
    assert any(
        "ATEN_CPU_CAPABILITY" in entry and "ranks of one run" in entry for entry in group.cells[0].apart
    )


def test_equal_ranks_are_told_nothing(tmp_path):
    run = run_mpi(
        2, [*SMALL, "--guarantee", "layout", "--out", str(tmp_path / "run")], env=dict([OTHER.split("=")])
    )
    assert TOLD not in run.stderr and "\nVERIFICATION: PASS\n" in run.stdout
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result["kinds"] == [] and "kinds" not in result["environment"]


def test_without_a_guarantee_kinds_are_told_and_the_verdict_is_that_of_the_checks(tmp_path):
    run = two_kinds(2, [*SMALL, "--out", str(tmp_path / "run")])
    assert TOLD in run.stderr and "--guarantee" not in run.stderr and "\nVERIFICATION: PASS\n" in run.stdout


def test_threads_count_where_the_guarantee_needs_them(tmp_path):
    for guarantee in ("run", "layout"):
        argv = [*SMALL, "--guarantee", guarantee, "--out", str(tmp_path / guarantee)]
        run = two_kinds(2, argv, setting="MKL_NUM_THREADS=3")
        assert ("MKL_NUM_THREADS=3" in run.stderr) == (guarantee == "run"), run.stderr
