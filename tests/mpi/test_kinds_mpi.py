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
        and f"Rank{'s 0-1' if size == 4 else ' 0'}: ATEN_CPU_CAPABILITY not set" in line
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


# ---- programs

WRAPPED = """
import numpy as np
from mpi4py import MPI
import fpna

comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout")
for part in (comm, comm.Split(0), comm):
    total = np.empty(4)
    part.Allreduce(np.full((2, 4), 0.1), total, axis=0)
assert len(set(comm.plain.allgather(total.tobytes()))) == 1
"""
RECORDED = """
import sys
import numpy as np
from mpi4py import MPI
import fpna

comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout")
with fpna.record(sys.argv[1], comm) as recording:
    recording.step(1)
    total = np.empty(4)
    comm.Allreduce(np.full((2, 4), 0.1), total, axis=0)
    recording.fingerprint("total", total, block=0)
"""
GRADIENTS = """
import sys
from mpi4py import MPI
import torch
import torch.distributed as dist
import fpna

comm = MPI.COMM_WORLD
dist.init_process_group("gloo", f"file://{sys.argv[2]}", rank=comm.rank, world_size=comm.size)
torch.manual_seed(1)
model = torch.nn.Linear(4, 1)
if sys.argv[1] == "hook":
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, fpna.ddp_hook())
    model(torch.ones(2, 4)).sum().backward()
else:
    for part in fpna.accumulate(model, micro=4).parts(torch.ones(4, 4)):
        model(part).mean().backward()
dist.destroy_process_group()
"""


@pytest.mark.parametrize("library, size", [("mpich", 2), ("mpich", 4), ("openmpi", 2)])
def test_wrap_warns_of_two_kinds_once_at_the_line_of_the_first_sum(library, size):
    run = two_kinds(size, ["-c", WRAPPED], library)
    assert run.returncode == 0, run.stderr
    (line,) = [line for line in run.stderr.splitlines() if TOLD in line]
    assert (
        "<string>:9: KindsWarning: fpna.wrap: ranks of 2 kinds" in line and f"on all ranks: {OTHER}" in line
    )


def test_wrap_warns_of_nothing_where_ranks_are_equal():
    run = run_mpi(2, ["-c", WRAPPED], env=dict([OTHER.split("=")]))
    assert run.returncode == 0 and "KindsWarning" not in run.stderr, run.stderr


def test_a_recording_tells_and_records_two_kinds(tmp_path):
    run = two_kinds(2, ["-c", RECORDED, tmp_path / "run"])
    assert run.returncode == 0 and run.stderr.count(TOLD) == 1, run.stderr
    kinds = json.loads((tmp_path / "run" / "result.json").read_text())["kinds"]
    assert [kind["ranks"] for kind in kinds] == ["0", "1"]
    assert read(tmp_path / "run" / "rank-00001.h5").attributes["environment"]["kinds"] == kinds


@pytest.mark.parametrize("door", ["hook", "accumulate"])
def test_sums_of_gradients_warn_of_two_kinds(tmp_path, door):
    pytest.importorskip("torch")
    run = two_kinds(2, ["-c", GRADIENTS, door, tmp_path / "two"])
    assert run.returncode == 0 and run.stderr.count(TOLD) == 1, run.stderr
    assert "gradients of equal samples may differ" in run.stderr and "KindsWarning" in run.stderr
    equal = run_mpi(2, ["-c", GRADIENTS, door, str(tmp_path / "one")])
    assert equal.returncode == 0 and TOLD not in equal.stderr, equal.stderr
