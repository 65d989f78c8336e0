"""The readers of files: other processes with limits, the ranks of an MPI job, and each command on one rank only."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from analysis.__main__ import main
from analysis.load import frames, guard, pool
from analysis.load.frames import load
from miniapps.trace import TraceError
from tests.analysis.deeds import crash, crash_on_rank_1, double, hang, leave, pid_of, refuse, swallow
from tests.analysis.synthetic import write_run
from tests.launch import run_mpi, run_python

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("processes", [1, 2])
def test_pieces_come_in_order_from_as_many_processes_as_wanted(tmp_path, processes):
    run = write_run(tmp_path / "r", size=12)
    tasks = [[run / f"rank-{rank:05d}.h5"] for rank in range(12)]
    with pool.readers(12, processes) as reading:
        ranks = [piece.heads[0].rank for pieces in reading(tasks) for piece in pieces]
    assert ranks == list(range(12))


def test_tasks_are_limited_by_files_and_by_bytes(tmp_path, monkeypatch):
    files = []
    for number, kilobytes in enumerate([4, 4, 4, 40, 4, 4, 4, 4, 4]):
        files.append(tmp_path / f"{number}")
        files[-1].write_bytes(bytes(1024 * kilobytes))
    monkeypatch.setattr(frames, "TOGETHER", 4)
    monkeypatch.setattr(frames, "TOGETHER_BYTES", 2**14)
    assert [len(task) for task in frames.tasks_of(files)] == [3, 1, 4, 1]
    assert [path for task in frames.tasks_of(files) for path in task] == files


@pytest.mark.parametrize(
    "deed, words",
    [
        (crash, "ended by SIGSEGV"),
        (leave, "exit code 3"),
        (hang, "more than 1 s"),
        (swallow, "more than 272 MiB of memory"),
    ],
)
def test_a_call_that_ends_its_process_or_does_not_end_is_survived(monkeypatch, deed, words):
    one = guard.Guard()
    first = one.call(pid_of)
    assert first != os.getpid()
    if deed is hang:
        monkeypatch.setattr(guard, "CALL_S", 1.0)
    with pytest.raises(guard.Ended, match=words):
        one.call(deed)
    monkeypatch.undo()
    assert one.call(double, 21) == 42
    assert (one.call(pid_of) == first) == (deed is swallow)
    one.close()


def test_ctrl_c_is_of_the_command_alone():
    one = guard.Guard()
    pid = one.call(pid_of)
    assert os.getpgid(pid) == pid != os.getpgrp()  # a terminal interrupts the group of the command
    one.close()


def test_what_a_call_raises_is_raised_here():
    with pytest.raises(TraceError, match="not a trace"):
        guard.call(refuse)


@pytest.mark.parametrize("size", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_a_file_that_ends_the_process_that_reads_it_is_named_and_the_others_are_used(
    tmp_path, monkeypatch, size
):
    write_run(tmp_path / "good")
    run = write_run(tmp_path / "bad", size=size)
    monkeypatch.setattr(pool, "read_piece", crash_on_rank_1)
    frames = load([tmp_path], processes=2, keep=False)
    unreadable = frames.excluded[frames.excluded["what"] == "unreadable"]["reason"].tolist()
    assert len(unreadable) == 2  # rank 1 of both runs
    assert f"{run / 'rank-00001.h5'}: damaged, or made to do harm: it was ended by SIGSEGV" in " ".join(
        unreadable
    )
    assert not frames.runs["complete"].any() and set(frames.runs["run"]) == {"good", "bad"}


@pytest.mark.slow
def test_the_ranks_of_an_mpi_job_read_together(tmp_path, capsys):
    for run in "ab":
        write_run(tmp_path / run, size=36, blocks=40, steps=2)
    command = ["variability", str(tmp_path), "--no-cache"]
    together = run_mpi(3, ["-m", "mpi4py.futures", "-m", "analysis", *command])
    assert together.returncode == main(command) == 0, together.stderr
    assert together.stdout == capsys.readouterr().out


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


PLAIN = """
import sys
from analysis.load.frames import load
print("begun")
frames = load(sys.argv[1:])
print(len(frames.runs), len(frames.excluded))
"""


@pytest.mark.parametrize("given", ("as a file", "on standard input"))
def test_a_script_without_a_main_block_reads_and_is_run_once(tmp_path, given):
    write_run(tmp_path / "run", size=2)
    script = tmp_path / "script.py"
    script.write_text(PLAIN)
    done = subprocess.run(
        [sys.executable, script if given == "as a file" else "-", tmp_path / "run"],
        input=None if given == "as a file" else PLAIN, capture_output=True, text=True, cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "begun\n1 0\n"), done.stderr


def test_a_reading_process_that_cannot_be_started_is_the_trouble_of_no_file(tmp_path, monkeypatch):
    write_run(tmp_path / "run", size=1)
    monkeypatch.setattr(guard, "shared", guard.Guard())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(guard.NotStarted, match="cannot be started: it ended with exit code 1"):
        load([tmp_path / "run"])


def test_a_forked_process_reads_by_a_process_of_its_own():
    mine, (receive, send) = guard.Guard(), os.pipe()
    try:
        before = mine.call(os.getpid)
        child = os.fork()
        if child == 0:
            os.write(send, str(mine.call(os.getpid)).encode())
            mine.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert int(os.read(receive, 20)) not in (before, os.getpid(), child)
        assert mine.call(os.getpid) == before
    finally:
        mine.close()
        os.close(receive)
        os.close(send)
