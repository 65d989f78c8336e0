"""Campaigns under a real mpirun: finished tasks are never repeated, failed ones are tried again and stay visible."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from jobs.campaign import read
from jobs.launcher import Launcher, LauncherError, here
from jobs.plan import plan
from jobs.processes import alive
from jobs.runner import run
from jobs.sites import site
from jobs.state import DONE, FAILED, INTERRUPTED, LEFT, State, StateError, survey
from tests.jobs.campaigns import MPIRUN, SMALL, STARTED, STARTED_ALONE, wrapper, write
from tests.launch import environment, launcher

pytestmark = pytest.mark.skipif(
    not MPIRUN.exists(), reason="no mpirun beside the interpreter (pip install mpich)"
)
ONE = SMALL.replace('["none", "layout"]', '["layout"]')
# Where nothing depends on the number of ranks; no pair of them is started first to see whether they meet.
ALONE, ONE_ALONE = (text.replace("ranks = [2]", "ranks = [1]") for text in (SMALL, ONE))


def local(path, mpirun=None, where=None, **options):
    """Run allocation 0 as `python -m jobs local` does; (Ended, what was said, where the tasks stand)."""
    workload = plan(read(path), where)
    lines = []
    ended = run(
        workload, 0, here(str(mpirun) if mpirun else None), lines.append, allocation_id="here-a0", **options
    )
    return ended, lines, survey(workload.campaign.out, workload.tasks)


def launches(out):
    """How many launches there were, from the logs of attempts."""
    return len(list((out / "logs").glob("*.txt")))


def until(condition, what, seconds=120):
    """Wait for something that another process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} after {seconds} s"
        time.sleep(0.02)


def test_a_killed_runner_is_resumed_without_repeating_what_is_finished(tmp_path):
    """The runner is killed with SIGKILL while its second task runs, whose mpirun survives it."""
    path = write(tmp_path)
    hang = wrapper(
        tmp_path, f'echo x >> {tmp_path}/count; [ "$(wc -l < {tmp_path}/count)" = 1 ] || sleep 600'
    )
    runner = subprocess.Popen(
        [sys.executable, "-m", "jobs", "local", str(path), "--mpirun", str(hang)],
        env=environment({}), stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    until(lambda: (tmp_path / "count").exists() and len((tmp_path / "count").read_text()) == 4, "second task")
    tasks = plan(read(path)).tasks
    journal = tmp_path / "out/state/a0.jsonl"
    until(
        lambda: sum("process" in line for line in journal.read_text().splitlines()) == 2,
        "note of its process",
    )
    runner.send_signal(signal.SIGKILL)
    first, second = survey(tmp_path / "out", tasks)
    runner.communicate(timeout=30)
    orphan = second.record.open.process
    first, second = survey(tmp_path / "out", tasks)
    assert (first.state, second.state) == (DONE, INTERRUPTED)
    assert alive(orphan)
    written = (tmp_path / "out" / first.task.id / "result.json").stat().st_mtime_ns

    ended, lines, standings = local(path)
    assert (ended.failed, ended.left) == (0, 0)
    assert "removed the lock of a runner that is gone" in lines[0]
    assert f"{second.task.id}: still runs without its runner as process {orphan.pid}; it is ended" in lines[1]
    assert not alive(orphan)
    assert [s.state for s in standings] == [DONE, DONE]
    assert launches(tmp_path / "out") == 3, "two by the first runner, one by the second"
    assert (tmp_path / "out" / first.task.id / "result.json").stat().st_mtime_ns == written

    result = json.loads((tmp_path / "out" / second.task.id / "result.json").read_text())
    assert (result["size"], result["allocation_id"], result["guarantee"]) == (2, "here-a0", "layout")
    assert "nothing" not in local(path)[1][0] and launches(tmp_path / "out") == 3, (
        "a third call has nothing to do"
    )


def test_a_task_that_fails_once_is_tried_again_after_the_others(tmp_path):
    flaky = wrapper(
        tmp_path,
        f"[ -e {tmp_path}/failed ] || {{ {STARTED_ALONE}; touch {tmp_path}/failed; echo Network error; exit 9; }}",
    )
    ended, lines, standings = local(write(tmp_path, ALONE), flaky)
    assert ended.failed == 0
    assert [s.state for s in standings] == [DONE, DONE]
    first, second = (s.task.id for s in standings)
    assert [line.split()[1] for line in lines[1:]] == [first, second, first]
    assert "exit code 9: Network error" in lines[1]
    assert [end.outcome for end in standings[0].record.ended] == [FAILED, DONE]


def test_a_task_that_always_fails_ends_as_failed_with_its_traces_kept_and_does_not_stop_the_others(tmp_path):
    text = SMALL.replace(
        '"method.samples"',
        '"run.fault" = ["kill@step=1,rank=1", "slow@step=1,rank=1,factor=1"], "method.samples"',
    )
    text = text.replace('["none", "layout"]', '"layout"').replace("[defaults]", "[defaults]\nretries = 0")
    path = write(tmp_path, text)
    ended, _, standings = local(path)
    states = {dict(s.task.options)["run.fault"][0][:4]: s for s in standings}
    assert ended.failed == 1
    assert (states["kill"].state, states["slow"].state) == (FAILED, DONE)
    name = states["kill"].task.id
    assert (tmp_path / f"out/failed/{name}.1/rank-00001.h5").is_file()
    assert "EXIT CODE: 9" in (tmp_path / f"out/logs/{name}.1.txt").read_text()
    assert local(path)[0].failed == 1 and launches(tmp_path / "out") == 2, (
        "failed for good: not again by itself"
    )
    assert local(path, retry_failed=True)[0].failed == 1 and launches(tmp_path / "out") == 3, (
        "unless asked to"
    )


def test_a_task_that_does_not_end_in_its_time_is_ended_and_has_failed(tmp_path):
    path = write(tmp_path, ONE.replace("[defaults]", "[defaults]\nretries = 0"), time='"00:00:01"')
    ended, lines, _ = local(path, wrapper(tmp_path, f"{STARTED}; echo $$ > {tmp_path}/pid; exec sleep 600"))
    assert ended.failed == 1
    assert "no end after its time of 1 s" in lines[-1]
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


REFUSES = "srun: error: Unable to create step for job 7: Job/step already completing or completed"


def test_a_launch_that_the_launcher_refuses_is_no_attempt_of_the_task(tmp_path):
    """More launches are refused than a task has attempts."""
    refusing = wrapper(
        tmp_path,
        f'echo x >> {tmp_path}/n; [ "$(wc -l < {tmp_path}/n)" -gt 5 ] || {{ echo "{REFUSES}"; exit 1; }}',
    )
    ended, lines, standings = local(write(tmp_path, ALONE), refusing, pauses=[0.01] * 5)
    assert (ended.failed, ended.left) == (0, 0)
    assert [s.state for s in standings] == [DONE, DONE]
    assert [s.record.failures for s in standings] == [[], []]
    refused = rf"interrupted  \d\.\d s: the launcher started no rank, exit code 1: {re.escape(REFUSES)}"
    assert re.search(refused, lines[1])
    assert lines[2] == "no attempt of the task: the next launch is in 0.01 s"


def test_a_launcher_that_refuses_for_ever_stops_the_runner_and_the_tasks_stay_left(tmp_path):
    path = write(tmp_path, ALONE)
    ended, lines, standings = local(path, wrapper(tmp_path, f"echo {REFUSES}; exit 1"), pauses=[0.01] * 3)
    assert (ended.failed, ended.left) == (0, 2)
    assert launches(tmp_path / "out") == 4
    assert [s.state for s in standings] == [INTERRUPTED, INTERRUPTED]
    assert "2 left, nothing more is launched: 4 launches in a row did not reach their tasks" in lines[-1]
    assert [s.state for s in local(path)[2]] == [DONE, DONE], "the next call goes on"


def test_some_ranks_are_no_attempt_and_neither_is_a_python_that_is_not_there(tmp_path):
    (tmp_path / "some").mkdir()
    _, lines, standings = local(
        write(tmp_path / "some", ONE), wrapper(tmp_path, f"{STARTED_ALONE}; exit 1"), pauses=[]
    )
    assert standings[0].state == INTERRUPTED and "the launcher started 1 of 2 ranks" in lines[1]
    _, lines, standings = local(write(tmp_path, ONE), wrapper(tmp_path, f"{STARTED}; exit 127"), pauses=[])
    assert standings[0].state == INTERRUPTED and "Python cannot be started there" in lines[1]


def test_ranks_that_are_ended_from_outside_have_not_failed(tmp_path):
    """A batch system that preempts a job sends its ranks SIGTERM, and lets the runner go on."""
    path = write(tmp_path, ONE)
    ended, lines, _ = local(
        path, wrapper(tmp_path, f"{STARTED}; echo slurmstepd: error: CANCELLED; exit 143"), pauses=[0.01]
    )
    assert (ended.failed, ended.left, launches(tmp_path / "out")) == (0, 1, 2)
    assert (
        "interrupted" in lines[1]
        and "ended from outside, exit code 143: slurmstepd: error: CANCELLED" in lines[1]
    )
    stopped = wrapper(tmp_path, f'{MPIRUN} "$@" & sleep 1.5; kill $!; wait $!; exit $?')
    slow = SMALL.replace('"method.samples" = 2', '"method.samples" = 100000').replace(
        '["none", "layout"]', '"none"'
    )
    (tmp_path / "slow").mkdir()
    assert [s.state for s in local(write(tmp_path / "slow", slow), stopped, pauses=[])[2]] == [INTERRUPTED]


def test_a_full_process_table_or_a_launcher_that_is_away_is_waited_for(tmp_path):
    workload, lines = plan(read(write(tmp_path, ONE))), []
    commands = iter([[str(MPIRUN)], ["/absent/srun"], ["/absent/srun"]])
    launcher = Launcher(
        lambda ranks, threads: [*next(commands, [str(MPIRUN)]), "-n", str(ranks)], here().environment
    )
    ended = run(workload, 0, launcher, lines.append, allocation_id="a", pauses=[0.01] * 2)
    assert (ended.failed, ended.left) == (0, 0)
    assert "interrupted: /absent/srun cannot be started: No such file or directory" in lines[1]


def test_a_program_that_dies_in_its_first_import_fails_after_its_attempts(tmp_path):
    dies = wrapper(tmp_path, f"{STARTED}; echo ImportError: libmpi.so.12; exit 1")
    ended, lines, standings = local(write(tmp_path, ONE), dies)
    assert (ended.failed, standings[0].state, launches(tmp_path / "out")) == (1, FAILED, 2)
    assert "exit code 1: ImportError: libmpi.so.12" in lines[-1]


def test_an_allocation_that_ends_takes_no_attempt_from_its_tasks(tmp_path, monkeypatch):
    """Slurm says that the job ends after the first launch failed."""
    dies = wrapper(tmp_path, f"{STARTED}; touch {tmp_path}/ends; exit 1")
    scontrol = tmp_path / "scontrol"
    scontrol.write_text(
        f"#!/bin/sh\n[ -e {tmp_path}/ends ] && echo JobId=7 JobState=COMPLETING || echo JobId=7 JobState=RUNNING\n"
    )
    scontrol.chmod(0o755)
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    ended, lines, standings = local(write(tmp_path), dies, limited=True)
    assert (ended.failed, ended.left, launches(tmp_path / "out")) == (0, 2, 1)
    assert sorted(s.state for s in standings) == [INTERRUPTED, LEFT]
    assert "2 left, nothing more is launched: Slurm says COMPLETING" in lines[-1]


def test_an_allocation_of_one_task_runs_it_where_nothing_says_when_it_ends(tmp_path, monkeypatch):
    for name in ("SLURM_JOB_END_TIME", "SLURM_JOB_ID", "PBS_JOBID"):
        monkeypatch.delenv(name, raising=False)
    assert [s.state for s in local(write(tmp_path, ONE_ALONE), limited=True)[2]] == [DONE]


def test_the_launcher_of_another_mpi_library_is_found_before_anything_runs(tmp_path):
    """A launcher that only starts processes leaves each of them alone, as one of another library does."""
    alone = tmp_path / "alone"
    alone.write_text('#!/bin/sh\nshift; n=$1; shift\nfor i in $(seq "$n"); do "$@" & done; wait\n')
    alone.chmod(0o755)
    with pytest.raises(
        LauncherError, match=r"every rank would be rank 0 of 1 .* Nothing was run. .*miniapps doctor"
    ):
        local(write(tmp_path), alone)
    assert launches(tmp_path / "out") == 0
    broken = wrapper(tmp_path, "")
    broken.write_text("#!/bin/sh\necho error: no network >&2; exit 1\n")
    with pytest.raises(LauncherError, match="cannot start two ranks: error: no network"):
        local(write(tmp_path), broken)
    with pytest.raises(LauncherError, match="'absent-mpirun' cannot be run: no such program"):
        here("absent-mpirun")


def test_open_mpi_with_mpi4py_on_mpich_is_found_before_anything_runs(tmp_path):
    command, _ = launcher("openmpi")
    with pytest.raises(LauncherError, match="Nothing was run"):
        local(write(tmp_path), command[0])


def test_a_full_disk_stops_the_runner_and_costs_no_retry(tmp_path):
    path = write(tmp_path, ONE)
    full = wrapper(tmp_path, "cat /etc/passwd > /dev/full; exit 1")
    with pytest.raises(StateError, match=r"the disk is full, as .*make room and start again"):
        local(path, full)
    (standing,) = survey(tmp_path / "out", plan(read(path)).tasks)
    assert (standing.state, standing.record.failures) == (INTERRUPTED, [])


def test_a_spoilt_result_is_moved_aside_and_run_again(tmp_path):
    path = write(tmp_path, ONE_ALONE)
    (task,) = plan(read(path)).tasks
    state = State(tmp_path / "out", 0)
    state.create()
    state.begin(task, 1, "a")
    state.end(task, 1, DONE, "", code=0)
    (tmp_path / "out" / task.id).mkdir()
    (tmp_path / "out" / task.id / "result.json").write_text("{")
    (standing,) = local(path)[2]
    assert standing.state == DONE
    assert (tmp_path / f"out/failed/{task.id}.1/result.json").read_text() == "{"


def test_no_task_begins_that_would_not_end_within_the_allocation(tmp_path, monkeypatch):
    path = write(tmp_path)
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time()) + 60))
    ended, lines, standings = local(path, limited=True)
    assert (ended.failed, ended.left) == (0, 2)
    assert [s.state for s in standings] == [LEFT, LEFT]
    assert "2 left, there is no time for more. Submit this allocation again" in lines[-1]


def test_options_in_the_environment_do_not_get_into_a_campaign(monkeypatch):
    monkeypatch.setenv("FPNA_RUN_DEVICE", "cuda")
    monkeypatch.setenv("PMI_RANK", "0")
    kept = here().environment
    assert not {"FPNA_RUN_DEVICE", "PMI_RANK"} & set(kept)


def test_a_site_starts_ranks_as_its_file_says(tmp_path):
    from jobs.launcher import of_site

    text = SMALL.replace("[defaults]", "[sites.generic-slurm]\nranks_per_node = 2\n[defaults]")
    where = site("generic-slurm")
    workload = plan(read(write(tmp_path, text)), where)
    assert of_site(where, workload).command(4, 1) == where.command(4, 2, 1)
