"""A rank that ends amid a training by the hook of DistributedDataParallel: no other rank waits for ever."""

import sys
from pathlib import Path

import pytest

from tests.launch import run_command, run_mpi

PROGRAM = Path(__file__).parent / "programs/ending.py"
UNEVEN = "RuntimeError: fpna: rank 1 has ended, and this rank began another backward pass"
NO_END = "a sum over processes of torch has no end: another process has ended or waits elsewhere"
OWN = {"backward": "RuntimeError: a backward pass that fails", "hook": "ZeroDivisionError: division by zero",
       "loop": "RuntimeError: a loop that fails"}  # fmt: skip


def slow(*cases):
    return [pytest.param(case, marks=pytest.mark.slow) for case in cases]


sizes = pytest.mark.parametrize("size", [2, *slow(3)])


def by_torchrun(size, argv):
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    return run_command([*start, *argv], {}, 150, None)


@sizes
@pytest.mark.parametrize("way", ["backward", "leave", "exit", *slow("hook", "loop")])
def test_under_mpirun_every_rank_ends_and_is_told_why(way, size):
    run = run_mpi(size, [PROGRAM, way])
    assert run.returncode != 0
    assert OWN.get(way, UNEVEN) in run.stderr
    ended_by_rank_1 = (
        f"fpna: rank 1 ended by {OWN.get(way)}. Other ranks wait for its gradients, so all ranks end"
    )
    if way in ("backward", "hook"):
        assert ended_by_rank_1 in run.stderr
    elif size == 2 or way != "loop":
        assert UNEVEN in run.stderr
    assert "step 2" in run.stdout
    assert "step 4" not in run.stdout


@sizes
@pytest.mark.parametrize("way", ["backward", "leave", *slow("exit", "hook", "loop")])
def test_under_torchrun_every_process_ends_and_is_told_why(way, size):
    run = by_torchrun(size, [PROGRAM, way])
    assert run.returncode != 0
    assert OWN.get(way, NO_END) in run.stderr
    assert "step 2" in run.stdout
    assert "step 4" not in run.stdout


@pytest.mark.parametrize("launched", [run_mpi, by_torchrun])
def test_a_rank_that_a_signal_ends_ends_the_others(launched):
    run = launched(2, [PROGRAM, "kill"])
    assert run.returncode != 0
    assert "signal 9" in (run.stdout + run.stderr).lower()
    assert "step 4" not in run.stdout
