"""Who reads: processes, the ranks of an MPI job, and never the same command on every rank."""

import os

import pytest

from analysis.load.pool import mapper
from tests.analysis.synthetic import write_run
from tests.launch import run_mpi, run_python


def number(item):
    return item, os.getpid()


@pytest.mark.parametrize("processes, pids", [(1, 1), (2, 2)])
def test_results_come_in_order_from_as_many_processes_as_wanted(processes, pids):
    with mapper(40, processes) as mapped:
        found = list(mapped(number, range(40)))
    assert [item for item, _ in found] == list(range(40))
    assert len({pid for _, pid in found}) <= pids
    assert ({pid for _, pid in found} == {os.getpid()}) == (processes == 1)


def test_the_ranks_of_an_mpi_job_read_together(tmp_path):
    for run in "ab":
        write_run(tmp_path / run, size=36, blocks=40)
    alone = run_python(["-m", "analysis", "variability", str(tmp_path), "--no-cache"])
    together = run_mpi(
        3, ["-m", "mpi4py.futures", "-m", "analysis", "variability", str(tmp_path), "--no-cache"]
    )
    assert together.returncode == alone.returncode == 0, together.stderr
    assert together.stdout == alone.stdout


def test_a_command_started_on_every_rank_is_refused_once(tmp_path):
    write_run(tmp_path / "a")
    done = run_mpi(3, ["-m", "analysis", "show", str(tmp_path)])
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("analysis: started 3 times by") == 1
    assert "mpirun -n 3 python -m mpi4py.futures -m analysis" in done.stderr


@pytest.mark.parametrize("text", ["0", "many", "-1"])
def test_a_number_of_processes_that_is_none_is_refused(tmp_path, text):
    done = run_python(["-m", "analysis", "show", str(tmp_path), f"--processes={text}"])
    assert done.returncode == 2 and "is no number of processes" in done.stderr
