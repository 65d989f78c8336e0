"""Files on disk decide which tasks are finished, two runners are kept apart, and no file is overwritten."""

import errno
import json
import multiprocessing
import os
import subprocess
import sys

import msgspec
import pytest

from jobs import campaign
from jobs.plan import plan
from jobs.processes import alive, identity
from jobs.records import Process
from jobs.state import (
    CHECK_FAILED,
    DONE,
    FAILED,
    INTERRUPTED,
    LEFT,
    RUNNING,
    TO_RETRY,
    Locked,
    Record,
    State,
    StateError,
    look,
    measured,
    survey,
)
from miniapps.trace.reader import read, trace_files
from miniapps.untrusted.result import written
from tests.analysis.synthetic import write_run
from tests.jobs.campaigns import write


@pytest.fixture
def task(tmp_path):
    return plan(campaign.read(write(tmp_path))).tasks[0]


@pytest.fixture
def state(tmp_path):
    store = State(tmp_path / "out", 0)
    store.create()
    return store


def finish(state, task, **changed):
    """The run of a finished task, as an application would leave it; `changed` in its result.json."""
    run = write_run(state.out / task.id, size=task.ranks)
    return result(run, **changed)


def result(run, **changed):
    """Write the result.json of the run in the directory `run`."""
    seals = {path.name: read(path, tables=()).digest for path in trace_files(run)}
    content = {
        "status": "done",
        "exit_code": 0,
        "traces": seals,
        "checks": [{"name": "energy", "passed": True}],
    }
    (run / "result.json").write_text(written(content | changed))
    return run


def test_a_run_is_finished_if_its_result_says_so_and_every_trace_is_complete(tmp_path, state, task):
    run = state.out / task.id
    assert look(run, 2)[0] == LEFT
    assert look(finish(state, task), 2) == (DONE, "")
    assert look(run, 3) == (FAILED, "traces of 2 ranks, and 3 were asked for")
    (run / "rank-00001.h5").rename(tmp_path / "elsewhere")
    assert look(run, 2)[0] == FAILED
    (run / "rank-00001.h5").write_bytes((tmp_path / "elsewhere").read_bytes()[:1000])
    assert "rank-00001.h5: damaged" in look(run, 2)[1]


def test_a_run_whose_traces_are_incomplete_or_whose_check_failed_says_so(state, task):
    write_run(state.out / "cut", complete=False)
    result(state.out / "cut")
    assert look(state.out / "cut", 2) == (FAILED, "the trace of rank 0 is incomplete")
    failed = finish(state, task, exit_code=3, checks=[{"name": "energy", "passed": False}])
    assert look(failed, 2) == (CHECK_FAILED, "check failed: energy")


def test_a_task_whose_check_failed_is_finished_and_its_run_is_kept(state, task):
    run = finish(state, task, exit_code=3, checks=[{"name": "energy", "passed": False}])
    state.begin(task, 1, "a")
    assert state.end(task, 1, *look(run, task.ranks), code=3, seconds=2.5) == "" and run.is_dir()
    (standing,) = survey(state.out, [task])
    assert (standing.state, standing.over) == (CHECK_FAILED, True)
    assert measured([standing]) == {task.configuration: 2.5}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"status": "done"}', "\x00\xff"])
def test_a_result_that_cannot_be_read_is_a_failure_that_names_it(state, task, text):
    run = finish(state, task)
    (run / "result.json").write_text(text, encoding="latin-1")
    outcome, reason = look(run, 2)
    assert outcome == FAILED
    assert f"{run}/result.json: " in reason


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"exit_code": 3}, "contradicts itself: exit code 3, 0 failed checks"),
        (
            {"checks": [{"name": "energy", "passed": False}]},
            "contradicts itself: exit code 0, 1 failed checks",
        ),
        ({"exit_code": 1}, "contradicts itself: exit code 1"),
        ({"traces": {}}, "was written for other traces than those beside it"),
        ({"traces": {"rank-00000.h5": "0" * 32, "rank-00001.h5": "0" * 32}}, "was written for other traces"),
        ({"exit_code": "0"}, "result.json: is not what this program writes"),
        ({"checks": 7}, "result.json: is not what this program writes"),
        ({"status": None}, "result.json: is not what this program writes"),
    ],
)
def test_a_result_that_does_not_fit_its_traces_or_itself_is_a_failure(state, task, changed, why):
    outcome, reason = look(finish(state, task, **changed), task.ranks)
    assert outcome == FAILED and why in reason


def test_a_trace_that_was_copied_over_that_of_another_rank_is_a_failure(state, task):
    run = finish(state, task)
    (run / "rank-00001.h5").write_bytes((run / "rank-00000.h5").read_bytes())
    result(run)
    outcome, reason = look(run, task.ranks)
    assert outcome == FAILED and "rank" in reason


@pytest.mark.parametrize("kind", ["fifo", "directory", "link", "sparse"])
def test_a_result_that_is_no_regular_file_is_a_failure_that_names_it(state, task, tmp_path, kind):
    place = finish(state, task) / "result.json"
    place.unlink()
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "directory":
        place.mkdir()
    elif kind == "link":
        place.symlink_to(tmp_path / "campaign.toml")
    else:
        with open(place, "wb") as file:
            file.truncate(40 * 2**30)
    outcome, reason = look(place.parent, task.ranks)
    assert outcome == FAILED and f"{place}: " in reason


def test_a_failure_is_retried_as_often_as_told_and_an_interruption_does_not_count(state, task):
    def states():
        return state.record(task).state(task)

    assert task.retries == 1
    state.begin(task, 1, "a")
    assert (states(), state.record(task).state(task, running=True)) == (INTERRUPTED, RUNNING)
    state.end(task, 1, INTERRUPTED, "the runner was killed")
    assert states() == INTERRUPTED
    for attempt, then in ((2, TO_RETRY), (3, FAILED)):
        state.begin(task, attempt, "a")
        state.end(task, attempt, FAILED, "exit code 9", code=9)
        assert states() == then
    assert state.record(task).state(task, forgiven=2) == TO_RETRY
    assert Record().state(task) == LEFT


def test_what_refuses_its_options_is_not_tried_again(state, task):
    state.begin(task, 1, "a")
    state.end(task, 1, FAILED, "exit code 2", code=2)
    assert state.record(task).state(task) == FAILED


def test_what_failed_is_moved_aside_under_its_attempt_and_never_over_another(state, task):
    for expected in (f"failed/{task.id}.1", f"failed/{task.id}.1+"):
        run = finish(state, task)
        assert state.end(task, 1, FAILED, "why") == expected
        assert not run.exists() and (state.out / expected / "rank-00000.h5").is_file()


def test_a_finished_task_whose_result_is_gone_or_damaged_is_left_to_do(state, task):
    run = finish(state, task)
    state.begin(task, 1, "a")
    state.end(task, 1, DONE, "", code=0, seconds=2.5)
    (standing,) = survey(state.out, [task])
    assert standing.over and measured([standing]) == {task.configuration: 2.5}
    (run / "result.json").write_text("{")
    (standing,) = survey(state.out, [task])
    assert (standing.state, standing.over) == (LEFT, False)
    assert "result.json: is not JSON" in standing.reason and "will be run again" in standing.reason


def test_a_line_cut_off_by_a_full_disk_costs_that_line_alone(state, task):
    state.begin(task, 1, "a")
    with open(state.journal, "a") as file:
        file.write('{"task": "' + task.id)
    state.end(task, 1, FAILED, "why", code=1)
    record = state.record(task)
    assert (len(record.begun), len(record.ended)) == (1, 1)


def test_a_full_disk_is_an_error_that_says_where_and_what_to_do(state, task, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StateError, match=r"a0.jsonl: cannot be written: No space left on device; make room"):
        state.begin(task, 1, "a")


def test_the_second_runner_is_told_who_the_first_is_and_how_to_remove_its_lock(state):
    with state.lock() as remark:
        assert remark == ""
        assert state.running()
        with pytest.raises(Locked, match=rf"process {os.getpid()} on .*rm {state.lock_file}"), state.lock():
            pass
        assert state.running(), "the refused one leaves the lock alone"
    assert not state.running()
    with state.lock():
        pass


def test_another_allocation_has_a_lock_of_its_own(state):
    with state.lock(), State(state.out, 1).lock():
        pass


def test_the_lock_of_a_process_that_is_gone_or_was_another_is_removed(state):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    here = msgspec.to_builtins(identity(os.getpid())) | {"since": "noon"}
    for held in (here | {"pid": gone.pid, "start": 1}, here | {"start": here["start"] - 1}):
        state.lock_file.write_text(json.dumps(held))
        assert not state.running()
        with state.lock() as remark:
            assert f"removed the lock of a runner that is gone: process {held['pid']}" in remark


@pytest.mark.parametrize(
    ("held", "who"), [('{"host": "elsewhere", "pid": 7, "since": "noon"}', "process 7 on elsewhere, since noon"),
                      ("{", "someone who left an unreadable lock")]
)  # fmt: skip
def test_a_lock_of_another_host_or_an_unreadable_one_is_never_removed(state, held, who):
    state.lock_file.write_text(held)
    with pytest.raises(Locked, match=who), state.lock():
        pass
    assert state.lock_file.read_text() == held


def take(out, barrier, answers):
    """Take a lock if it can be had, and keep it until all have tried."""
    state = State(out, 0)
    barrier.wait()
    try:
        with state.lock():
            answers.put(True)
            barrier.wait()
    except Locked:
        answers.put(False)
        barrier.wait()


def test_of_many_that_find_the_same_stale_lock_one_gets_it(state):
    fork = multiprocessing.get_context("fork")
    for _ in range(5):
        stale = msgspec.to_builtins(identity(os.getpid())) | {"start": 1, "since": "noon"}
        state.lock_file.write_text(json.dumps(stale))
        barrier, answers = fork.Barrier(6), fork.Queue()
        workers = [fork.Process(target=take, args=(state.out, barrier, answers)) for _ in range(6)]
        for worker in workers:
            worker.start()
        assert sorted(answers.get(timeout=30) for _ in workers) == [False] * 5 + [True]
        for worker in workers:
            worker.join(30)


def test_whether_a_process_is_alive_cannot_be_known_from_another_host_boot_or_namespace():
    here = identity(os.getpid())
    assert alive(here) is True
    assert alive(msgspec.structs.replace(here, start=here.start - 1)) is False
    for other in (
        {"host": "elsewhere"},
        {"boot": "another"},
        {"boot": None},
        {"namespace": "pid:[1]"},
        {"start": None},
    ):
        assert alive(msgspec.structs.replace(here, **other)) is None
    assert alive(Process(host=here.host, pid=here.pid)) is None
