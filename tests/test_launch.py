"""The launcher of the other tests ends whatever hangs, and leaves no process behind."""

import time
from pathlib import Path

import pytest

from tests.launch import descendants, home, launcher, libraries, run_mpi, run_python

HANG = """
import os, sys, time
from pathlib import Path
from mpi4py import MPI
comm = MPI.COMM_WORLD
Path(sys.argv[1], f"{comm.rank}").write_text(str(os.getpid()))
sys.stdout.write(f"rank {comm.rank} is here\\n")
sys.stdout.flush()
comm.Barrier()
if comm.rank == 0:
    time.sleep(600)
comm.Barrier()
"""


@libraries
def test_ranks_see_each_other_and_one_thread(library):
    # In one write: what ranks print piece by piece may interleave.
    show = "sys.stdout.write(f\"{MPI.COMM_WORLD.allreduce(1)} {os.environ['OMP_NUM_THREADS']}\\n\")"
    run = run_mpi(3, ["-c", "import os, sys; from mpi4py import MPI; " + show], library)
    assert run.returncode == 0, run.stderr
    assert run.stdout.split() == ["3", "1"] * 3


LOADED = """
import sys
from pathlib import Path
from mpi4py import MPI
print({Path(line.split()[-1]).resolve() for line in open("/proc/self/maps") if "/libmpi.so" in line}.pop())
"""


@libraries
def test_the_library_that_is_asked_for_is_loaded_and_no_other_of_the_machine(library):
    """By a launcher and without one, which puts its own place before others."""
    _, variables = launcher(library)
    for run in (run_mpi(1, ["-c", LOADED], library), run_python(["-c", LOADED], variables)):
        assert run.returncode == 0, run.stderr
        assert Path(run.stdout.strip()).is_relative_to(home(library))


@libraries
def test_a_hanging_job_is_killed_and_its_output_shown(library, tmp_path):
    for limit in (3, 30):  # in which a busy machine may not even start the ranks: then again, with more time
        with pytest.raises(pytest.fail.Exception, match=f"no end after {limit} s") as failure:
            run_mpi(3, ["-c", HANG, str(tmp_path)], library, timeout=limit)
        if len(list(tmp_path.iterdir())) == 3:
            break
    assert "rank 2 is here" in str(failure.value)
    ranks = [int(path.read_text()) for path in tmp_path.iterdir()]
    assert len(ranks) == 3
    gone = time.monotonic() + 10  # killed processes leave when the kernel gets to it
    while any(map(running, ranks)) and time.monotonic() < gone:
        time.sleep(0.05)
    assert not [pid for pid in ranks if running(pid)]


def test_a_failing_rank_shows_in_the_exit_code():
    run = run_mpi(
        2,
        [
            "-c",
            "from mpi4py.MPI import COMM_WORLD as c; print(c.rank); c.Abort(7) if c.rank else c.Barrier()",
        ],
    )
    assert run.returncode == 7


def test_a_launched_program_is_no_rank_of_the_job_around_it(monkeypatch):
    monkeypatch.setenv("PMI_RANK", "3")
    assert run_python(["-c", "import os; print(os.environ.get('PMI_RANK'))"]).stdout.split() == ["None"]


def test_the_checkout_is_importable_from_anywhere(tmp_path):
    run = run_python(["-c", "import tests.launch as t; print(t.__file__)"], cwd=tmp_path)
    assert Path(run.stdout.strip()) == Path(__file__).parent / "launch.py"


def test_descendants_of_a_process_that_is_gone():
    assert descendants(2**22 + 1) == []


def running(pid):
    """Whether the process exists and is not merely waiting to be reaped by its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
