"""Jobs under a real Slurm (tests/jobs/slurm.py): rendered scripts run, and jobs that end early leave their results."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest

from jobs.campaign import read as read_campaign
from jobs.job import Job, JobError
from jobs.plan import plan
from jobs.sites import site
from jobs.submit import states, submit
from miniapps.trace.reader import TraceError, read_run
from tests.jobs.slurm import FEATURE

psij = pytest.importorskip("psij", reason="the extra `jobs`: pip install psij-python")
pytestmark = (
    pytest.mark.slow
)  # a minute, most of it waiting: Slurm looks for jobs whose time is up twice a minute
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def place(slurm, tmp_path_factory):
    """A directory in which jobs run; Slurm's commands and this checkout are found from it."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("SLURM_CONF", "PATH"):
            patch.setenv(name, slurm.environment[name])
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("OMP_NUM_THREADS", "1")
        directory = tmp_path_factory.mktemp("slurm")
        patch.chdir(directory)
        yield directory


@pytest.fixture(scope="module")
def cluster(place):
    """The generic site, with what the MPICH of the package index wants of srun."""
    text = files("jobs").joinpath("sites/generic-slurm.toml").read_text()
    assert text.count('"srun --') == 1
    (place / "cluster.toml").write_text(text.replace('"srun --', '"srun --mpi=pmi2 --'))
    return site(str(place / "cluster.toml"))


def job(name, *commands, **more):
    """One node, two ranks, in this Python's environment."""
    values = dict(
        nodes=1, ranks_per_node=2, threads=1, seconds=600, account=None, queue=None, environment=sys.prefix
    )
    return Job(name=name, commands=commands, **values | more)


def coupled(cluster, out, *options):
    """A line of shell that runs the coupled application on two ranks."""
    launch = shlex.join(cluster.command(2, 2))
    return f"{launch} python -m miniapps.coupled --no-progress --closure physics --out {out} {shlex.join(options)}"


def assert_salvaged(run):
    """Both ranks' traces read, say that they are incomplete, and hold steps."""
    ranks = list(read_run(run))
    assert [rank.complete for rank in ranks] == [False, False]
    assert min(len(rank.tables["fingerprints"]["step"]) for rank in ranks) > 0


def runs_of(place, name):
    """The runs below the directory `name`, by the allocation that each of them recorded."""
    runs = [list(read_run(directory)) for directory in sorted((place / name).iterdir())]
    return {ranks[0].attributes["allocation_id"]: ranks for ranks in runs}


def flushed(run, output, seconds=60):
    """The two ranks' traces of a run that goes on, once both have steps on disk."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(TraceError, OSError):
            ranks = list(read_run(run))
            if len(ranks) == 2 and all(len(rank.tables["fingerprints"]["step"]) for rank in ranks):
                return ranks
        time.sleep(0.5)
    raise AssertionError(f"no steps on disk after {seconds} s: {output.read_text()}")


@pytest.fixture(scope="module", autouse=True)
def killed(slurm, place, cluster):
    """A job that stands still when its time ends; the other tests go on meanwhile, for Slurm looks twice a minute."""
    endless = job("endless", coupled(cluster, "killed/$FPNA_ALLOCATION_ID", "--set", "time.steps=1000000"))
    submission = submit(endless, cluster, place / "jobs")
    slurm.wait(submission.id, ["RUNNING"])

    ranks = flushed(place / "killed" / submission.id, place / f"endless_{submission.id}.out")
    for rank in ranks:
        os.kill(rank.attributes["environment"]["pid"], signal.SIGSTOP)
    # The limit is whole minutes; a running job's end can be moved.
    slurm.command("scontrol", "update", f"JobId={submission.id}", "EndTime=now+1")
    return submission


def test_an_array_is_one_allocation_after_another_and_the_report_comes_after_them(slurm, place, cluster):
    line = coupled(cluster, "array/$FPNA_ALLOCATION_ID-$FPNA_ARRAY_INDEX", "--set", "time.steps=1")
    runs = submit(job("array", line, array=2), cluster, place / "jobs")
    report = submit(
        job("report", f"{sys.executable} -m analysis report array -o report.html", ranks_per_node=1),
        cluster,
        place / "jobs",
        after=runs,
    )
    assert slurm.job(report.id)["Reason"] == "Dependency"
    waiting = {state.id: (state.state, state.message) for state in states(place / "jobs")}
    assert waiting[report.id] == ("QUEUED", "PENDING: Dependency")
    assert {f"{runs.id}_0", f"{runs.id}_1"} <= set(waiting)

    elements = [slurm.wait(f"{runs.id}_{index}") for index in (0, 1)]
    output = (place / f"array_{runs.id}_0.out").read_text()
    assert [element["JobState"] for element in elements] == ["COMPLETED"] * 2, output
    assert elements[0]["EndTime"] <= elements[1]["StartTime"]

    recorded = runs_of(place, "array")
    assert set(recorded) == {element["JobId"] for element in elements}, (
        "two allocations, each with its own id"
    )
    for allocation, ranks in recorded.items():
        assert [rank.attributes["size"] for rank in ranks] == [2, 2], allocation
        assert all(rank.complete for rank in ranks), allocation
    assert "VERIFICATION: PASS" in output

    ended = slurm.wait(report.id, seconds=180)
    assert ended["JobState"] == "COMPLETED", (place / f"report_{report.id}.out").read_text()
    assert ended["StartTime"] >= elements[1]["EndTime"]
    assert (place / "report.html").stat().st_size > 0
    after = {state.id: (state.state, state.message) for state in states(place / "jobs")}
    assert after[report.id] == ("COMPLETED", "COMPLETED")


CAMPAIGN = """
name = "cut"
out = "cut"
limit = "00:10:00"
[defaults]
time = "00:05:00"
[[runs]]
app = "coupled"
ranks = 2
options = { "closure.kind" = "physics", "time.steps" = [1, 120] }
[sites.cluster]
ranks_per_node = 2
"""


def test_a_campaign_that_is_cut_off_goes_on_when_it_is_submitted_again(slurm, place, cluster):
    (place / "cut.toml").write_text(CAMPAIGN)

    def jobs(*words):
        run = subprocess.run(
            [sys.executable, "-m", "jobs", words[0], "cut.toml", "--site", "./cluster.toml", *words[1:]],
            capture_output=True,
            text=True,
        )
        return run.returncode, run.stdout + run.stderr

    def submitted():
        code, text = jobs("submit", "--yes")
        assert code == 0, text
        return re.findall(r"submitted \S+ as job (\d+)", text)

    code, text = jobs("submit")
    assert "at most" in text and "node-hours" in text and "--yes" in text
    assert not (place / "cut/jobs/submitted.jsonl").exists()

    runs, _ = submitted()
    [longer] = [task for task in planned(place) if "-120-" in task]
    deadline = time.monotonic() + 60
    while not list((place / "cut" / longer).glob("rank-*.h5")):
        assert time.monotonic() < deadline, jobs("status")
        time.sleep(0.1)
    slurm.command("scancel", runs)
    assert slurm.wait(runs)["JobState"] == "CANCELLED"

    again, report = submitted()
    assert slurm.wait(again)["JobState"] == "COMPLETED", jobs("status")
    assert slurm.wait(report)["JobState"] == "COMPLETED", jobs("status")
    for task in planned(place):
        ranks = list(read_run(place / "cut" / task))
        assert [rank.complete for rank in ranks] == [True, True]
    [aside] = (place / "cut/failed").iterdir()
    assert aside.name.startswith(longer), "what the cut-off attempt left is kept"
    assert (place / "cut/report.html").stat().st_size > 0
    code, text = jobs("status")
    assert code == 0
    assert f"job {runs} cut: CANCELED CANCELLED" in text
    assert f"job {again} cut: COMPLETED" in text


def planned(place):
    """The names of the campaign's tasks."""
    where = site(str(place / "cluster.toml"))
    return [task.id for task in plan(read_campaign(place / "cut.toml"), where).tasks]


def test_a_failed_command_is_a_failed_job(slurm, place, cluster):
    submission = submit(job("fails", "exit 3", "echo not reached"), cluster, place / "jobs")
    ended = slurm.wait(submission.id)
    assert (ended["JobState"], ended["ExitCode"]) == ("FAILED", "3:0")
    assert "not reached" not in (place / f"fails_{submission.id}.out").read_text()
    assert ("FAILED", "FAILED: NonZeroExitCode") in {
        (state.state, state.message) for state in states(place / "jobs") if state.id == submission.id
    }


def test_a_killed_rank_ends_the_job_instead_of_leaving_the_others_to_wait(slurm, place, cluster):
    line = coupled(cluster, "lost", "--set", "time.steps=1000000", "--fault", "kill@step=1,rank=1")
    submission = submit(job("lost", line), cluster, place / "jobs")
    assert slurm.wait(submission.id)["JobState"] == "FAILED", (
        place / f"lost_{submission.id}.out"
    ).read_text()
    assert [rank.complete for rank in read_run(place / "lost")] == [False, False]


def test_a_drained_node_is_the_reason_why_a_job_waits_and_it_runs_afterwards(slurm, place, cluster):
    slurm.command("scontrol", "update", f"NodeName={slurm.hosts[0]}", "State=DRAIN", "Reason=fan")
    try:
        submission = submit(job("waits", "true"), cluster, place / "jobs")
        deadline = time.monotonic() + 60
        while slurm.job(submission.id)["Reason"] == "None":  # it has not been considered yet
            assert time.monotonic() < deadline
            time.sleep(0.2)
        [state] = [state for state in states(place / "jobs") if state.id == submission.id]
        assert state.state == "QUEUED"
        assert re.fullmatch(f"PENDING: (.*DRAINED.*|.*UnavailableNodes:{slurm.hosts[0]})", state.message)
    finally:
        slurm.command("scontrol", "update", f"NodeName={slurm.hosts[0]}", "State=RESUME")
    assert slurm.wait(submission.id)["JobState"] == "COMPLETED"


def test_a_cancelled_job_is_cancelled_and_its_traces_read(slurm, place, cluster):
    endless = coupled(cluster, "cancelled/$FPNA_ALLOCATION_ID", "--set", "time.steps=1000000")
    submission = submit(job("cancelled", endless), cluster, place / "jobs")
    run = place / "cancelled" / submission.id
    flushed(run, place / f"cancelled_{submission.id}.out")
    slurm.command("scancel", submission.id)
    assert slurm.wait(submission.id)["JobState"] == "CANCELLED"
    assert [state.state for state in states(place / "jobs") if state.id == submission.id] == ["CANCELED"]
    assert_salvaged(run)


def test_when_time_is_up_what_was_flushed_is_kept_and_read(slurm, place, killed):
    assert slurm.wait(killed.id, seconds=90)["JobState"] == "TIMEOUT"
    assert [(s.state, s.message) for s in states(place / "jobs") if s.id == killed.id] == [
        ("FAILED", "TIMEOUT: TimeLimit")
    ]
    assert_salvaged(place / "killed" / killed.id)
    shown = subprocess.run(
        [sys.executable, "-m", "analysis", "report", "killed", "-o", "killed.html"],
        capture_output=True,
        text=True,
    )
    assert shown.returncode == 0, shown.stderr
    assert re.search(
        rf"incomplete: killed/{killed.id}: ended early .*kept: repeat 0 to step \d+", shown.stderr
    )


@pytest.mark.parametrize("start", ["", "srun --mpi=pmi2 -n2 "])
def test_the_first_minute_in_a_job(slurm, place, start):
    """`fpna try` starts ranks of its own, and in a step uses those of the step."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = f"#!/bin/sh\nPATH={path} {start}{sys.executable} -m fpna try --json\n"
    submitted = slurm.sbatch(script, "-n2", "-o", place / "first.json", "-e", place / "first.err", cwd=place)
    assert slurm.wait(submitted)["JobState"] == "COMPLETED", (place / "first.err").read_text()
    found = json.loads((place / "first.json").read_text())
    assert [row["ranks"] for row in found["tables"]["sums"]] == ([2] if start else [2, 3, 4])
    assert found["results_layout"] == 1


def test_slurm_gives_nodes_of_the_kind_that_a_job_asks_for_and_refuses_one_that_it_lacks(
    slurm, place, cluster
):
    text = (place / "cluster.toml").read_text()
    kinds = (f'{name} = ["--constraint={name}", "one of two"]' for name in (FEATURE, "skylake"))
    (place / "kinds.toml").write_text("\n".join([text, "[kinds]", *kinds]))
    ours = site(str(place / "kinds.toml"))
    done = submit(job("kind", "true", kind=FEATURE), ours, place / "jobs")
    ended = slurm.wait(done.id)
    assert (ended["JobState"], ended["Features"]) == ("COMPLETED", FEATURE)
    with pytest.raises(JobError, match=r"(?i)node configuration is not available|invalid feature"):
        submit(job("lacking", "true", kind="skylake"), ours, place / "jobs")
