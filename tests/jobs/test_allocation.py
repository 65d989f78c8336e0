"""A runner's knowledge of its allocation: from the batch system, or from the plan if that says nothing."""

import json
import os
import time

import pytest

from jobs.allocation import of_batch
from jobs.state import Locked, State

NOW = int(time.time())
RUNNING = (
    "JobId=7 JobName=a JobState=RUNNING Reason=None Requeue=1 Restarts=0 TimeLimit=00:01:00 StartTime={start} "
    "EndTime={end} {more}Deadline=N/A SuspendTime=None"
)  # of Slurm 22.05, with SLURM_TIME_FORMAT=%s, without what is not read


@pytest.fixture
def says(tmp_path, monkeypatch):
    """A function that makes a scheduler's command print a text, or fail."""
    for name in (
        "SLURM_JOB_END_TIME",
        "SLURM_JOB_ID",
        "SLURM_RESTART_COUNT",
        "SLURM_CLUSTER_NAME",
        "PBS_JOBID",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def put(name, text, code=0):
        monkeypatch.setenv({"scontrol": "SLURM_JOB_ID", "qstat": "PBS_JOBID"}[name], "7")
        (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
        (tmp_path / name).chmod(0o755)

    return put


def slurm(start=NOW - 60, end=NOW + 6000, more=""):
    return RUNNING.format(start=start, end=end, more=more)


def test_the_end_is_the_one_that_slurm_has_now(says):
    says("scontrol", slurm())
    ask = of_batch(120)
    assert (ask().start, ask().end, ask().ending) == (NOW - 60, NOW + 6000, "")
    says("scontrol", slurm(end=NOW + 3000))
    assert ask().end == NOW + 3000, "someone has changed it"
    says("scontrol", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)", code=1)
    assert (ask().end, ask().ending) == (NOW + 3000, ""), "the last answer stands"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (slurm(more=f"PreemptTime={NOW} "), "Slurm preempts the job"),
        (slurm(end=NOW - 1), "its time is up"),
        (slurm().replace("RUNNING", "COMPLETING"), "Slurm says COMPLETING"),
        (slurm().replace("Restarts=0", "Restarts=1"), "Slurm has put the job into the queue again"),
        ("slurm_load_jobs error: Invalid job id specified", "Slurm does not know the job any more"),
    ],
)
def test_slurm_says_why_no_launch_can_succeed_any_more(says, answer, why):
    says("scontrol", answer, code=answer.startswith("slurm_load"))
    assert of_batch(120)().ending == why
    assert of_batch(120)().preempted == ("preempts" in why)


def test_of_an_array_the_own_element_counts(says):
    """The last element has the number of the array, and `scontrol` shows all elements of that."""
    others = [slurm(end=NOW - 9).replace("JobId=7", f"JobId={number}") for number in (8, 9)]
    over = [other.replace("RUNNING", "COMPLETED") for other in others]
    for answer in ([*over, slurm()], [slurm(), *over], [over[0], slurm(), over[1]]):
        says("scontrol", "\n".join(answer))
        assert (of_batch(120)().ending, of_batch(120)().end) == ("", NOW + 6000)
    says("scontrol", "\n".join(over))
    assert of_batch(120)().ending == "", "nothing is said of this one"


def test_the_job_that_was_put_into_the_queue_again_is_none_that_ends_when_it_runs(says, monkeypatch):
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    says("scontrol", slurm().replace("Restarts=0", "Restarts=1"))
    assert of_batch(120)().ending == ""


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        (slurm(), False),
        (slurm().replace("RUNNING", "COMPLETING"), False),
        (slurm().replace("RUNNING", "NODE_FAIL"), True),
        (slurm().replace("Restarts=0", "Restarts=1"), True),
        ("slurm_load_jobs error: Invalid job id specified", True),
        ("slurm_load_jobs error: Unable to contact slurm controller (connect failure)", False),
    ],
)
def test_the_lock_of_a_runner_on_another_node_stays_until_its_job_is_over(
    says, monkeypatch, tmp_path, answer, over
):
    says("scontrol", answer.replace("JobId=7", "JobId=6"))
    monkeypatch.setenv("SLURM_CLUSTER_NAME", "here")
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    state = State(tmp_path / "out", 0)
    state.create()
    lock = {
        "host": "n2",
        "pid": 7,
        "start": 1,
        "boot": "b",
        "namespace": "pid:[1]",
        "since": "2026-01-01T00:00:00",
    }

    def taken(start_of_job):
        state.lock_file.write_text(json.dumps(lock | {"start_of_job": start_of_job}))
        try:
            with state.lock():
                return True
        except Locked:
            return False

    assert taken("here/6.0") == over
    assert not taken("elsewhere/6.0"), "of another cluster nothing is known"
    assert not taken("here/--help.0") and not taken("")
    assert not taken("here/7.0"), "of this start of this job"
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    assert taken("here/7.0"), "of this job before it was put into the queue again"


def test_pbs_is_asked_too(says):
    start = time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(NOW - 60))
    text = f"Job Id: 7\n    job_state = R\n    Resource_List.walltime = 01:00:00\n    stime = {start}"
    says("qstat", text)
    assert (of_batch(120)().start, of_batch(120)().end) == (NOW - 60, NOW + 3540)
    says("qstat", text.replace("= R", "= E"))
    assert of_batch(120)().ending == "PBS says E"


def test_where_no_batch_system_answers_the_plan_counts(says, monkeypatch):
    known = of_batch(120)()
    assert known.end - known.start == 120 and known.end == pytest.approx(time.time() + 90, abs=5)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(NOW + 7777))
    assert (of_batch(120)().start, of_batch(120)().end) == (None, NOW + 7777)
