"""Ranks that make no progress, with `--stall`, end the run and say where they wait."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from miniapps.runner.stall import Note, conclusion
from miniapps.system.peers import answering
from miniapps.trace import rank_files, read
from tests.launch import either_library, environment, kill_tree, launcher, run_python

TINY = ["-m", "tests.miniapps.tiny", "--no-progress"]
HOSTS = ["n1", "n1", "n2", "n2", "n3", "n3"]
HERE = Note(0, 7, "allreduce.total")


def test_what_is_known_of_others_is_said_by_node():
    notes = {0: HERE, 1: HERE, 2: Note(0, 6, "an exchange with ranks 1, 4"), 3: HERE}
    text, blamed = conclusion(0, 30, notes, HOSTS, lambda hosts: {"n2": True, "n3": False})
    assert text == (
        "no progress for 30 s (--stall): waits in allreduce.total; rank 1 on n1 waits in allreduce.total; rank 2 on n2 "
        "waits in an exchange with ranks 1, 4 (repeat 0, step 6); rank 3 on n2 waits in allreduce.total; no note "
        "from ranks 4, 5 on n3: killed, cut off, or computing; n3 does not answer n1; n2 answers n1"
    )
    assert blamed == 4


def test_who_answers_is_not_blamed_and_an_unknown_name_is_no_answer():
    assert conclusion(0, 30, {0: HERE}, HOSTS[:3], lambda hosts: {"n2": True})[1] is None
    text, blamed = conclusion(0, 30, {0: HERE}, HOSTS[:3], lambda hosts: {})
    assert blamed is None and "answer" not in text
    assert answering(["127.0.0.1", "no.such.host.invalid"]).get("127.0.0.1") is True


@either_library
def test_a_rank_that_stands_still_ends_the_run_of_the_others(library, tmp_path):
    out = tmp_path / "run"
    command, extra = launcher(library)
    argv = [*TINY, "--out", str(out), "--stall", "2", "--steps", "1000000", "--set", "work.regions=2000"]
    job = subprocess.Popen(
        [*command, "-n", "3", sys.executable, *argv], env=environment(extra), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        end = time.monotonic() + 100
        while len(list(out.glob("*.h5"))) < 3 or min(p.stat().st_size for p in out.glob("*.h5")) < 200_000:
            assert time.monotonic() < end and job.poll() is None
            time.sleep(0.05)
        time.sleep(3)  # a run that makes progress goes on
        assert job.poll() is None
        stopped = read(out / "rank-00001.h5").attributes["environment"]["pid"]
        os.kill(stopped, signal.SIGSTOP)
        said = job.communicate(timeout=100)[1]
    finally:
        kill_tree(job)
    assert job.returncode == 1
    [message] = [line for line in said.splitlines() if line.startswith("tiny: rank")]
    assert "no progress for 2 s (--stall): waits in allreduce.total" in message
    assert "no note from rank 1 on" in message
    outcome = json.loads((out / "result.json").read_text())
    assert (outcome["status"], outcome["failed_rank"], outcome["error"]) == ("failed", None, message)
    for path in rank_files(out):
        trace = read(path)
        assert not trace.complete and len(trace.tables["events"]["step"]) > 0


def test_a_run_that_ends_in_time_leaves_no_note(tmp_path):
    run = run_python([*TINY, "--out", str(tmp_path / "run"), "--stall", "30"])
    assert run.returncode == 0, run.stderr
    assert not list((tmp_path / "run").glob("stalled-*"))


@pytest.mark.parametrize("seconds", ["-1", "soon"])
def test_a_bound_that_is_none_is_refused(seconds, tmp_path):
    run = run_python([*TINY, "--out", str(tmp_path / "run"), "--stall", seconds])
    assert run.returncode == 2 and "stall" in run.stderr
