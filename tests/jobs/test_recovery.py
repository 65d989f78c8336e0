"""What a runner ends, renames and removes is its own: nothing that a forged journal, lock or link makes look so."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import pytest

from jobs.campaign import read
from jobs.files import to_append
from jobs.launcher import Launcher
from jobs.plan import plan
from jobs.processes import identity, why_not_own
from jobs.records import Process
from jobs.runner import recover_all, run
from jobs.state import FAILED, INTERRUPTED, Locked, State, StateError, survey
from miniapps.untrusted.regular import Refused
from tests.jobs.campaigns import write
from tests.jobs.test_state import finish

OLD, LATER = "2001-01-01T00:00:00+00:00", "2999-01-01T00:00:00+00:00"


@pytest.fixture
def workload(tmp_path):
    return plan(read(write(tmp_path)))


@pytest.fixture
def task(workload):
    return workload.tasks[0]


@pytest.fixture
def state(workload):
    store = State(workload.campaign.out, 0)
    store.create()
    return store


def sleeping(*arguments, **options):
    """A process that does nothing for ten minutes, with `arguments` on its command line."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", *arguments], **options)
    # Popen returns when the program is replaced, a moment before /proc has its command line.
    while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
        time.sleep(0.01)
    return process


def ended(process):
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def unrelated():
    """A process of this user that leads a session, as a shell does, and is none of a campaign's."""
    process = sleeping(start_new_session=True)
    yield process
    ended(process)


def forge(state, task, process):
    """A journal that says that `process`, of an attempt whose runner is gone, is the launch of `task`."""
    state.begin(task, 1, "a")
    with to_append(state.journal) as file:
        file.write(
            (json.dumps({"task": task.id, "attempt": 1, "at": "", "process": process}) + "\n").encode()
        )


def recover(state, task):
    """What the next runner says."""
    lines = []
    recover_all(state, survey(state.out, [task], doubt=lines.append), lines.append)
    return "\n".join(lines)


CHANGES = {
    "no start": {"start": None},
    "no boot": {"boot": None},
    "no start, boot and namespace": {"start": None, "boot": None, "namespace": None},
    "another boot": {"boot": "00000000-0000-0000-0000-000000000000"},
    "another namespace": {"namespace": "pid:[1]"},
    "another host": {"host": "elsewhere"},
    "everything right, but the program is another": {},
}


@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_a_process_that_may_be_another_is_left_alone_and_named(state, task, unrelated, changes):
    known = msgspec.to_builtins(identity(unrelated.pid))
    forge(state, task, known | changes)
    report = recover(state, task)
    assert unrelated.poll() is None
    assert (
        f"process {unrelated.pid} on {(known | changes)['host']} may be the launch of its attempt 1" in report
    )
    assert f"left alone, because {'its host' if changes else str(state.out)}" in report
    assert f"kill -- -{unrelated.pid}" in report
    assert state.record(task).last.outcome == INTERRUPTED, "the attempt is over all the same"


def test_a_later_process_of_the_same_number_is_no_case_of_doubt_and_lives(state, task, unrelated):
    here = msgspec.to_builtins(identity(unrelated.pid))
    forge(state, task, here | {"start": here["start"] - 1})
    assert "process" not in recover(state, task)
    assert unrelated.poll() is None


@pytest.mark.parametrize("pid", [0, -1, -(10**30), 10**30, "7", 1.5, True, None, [], {}])
def test_a_pid_that_is_none_is_named_with_its_line_and_not_believed(state, task, unrelated, pid):
    forge(state, task, msgspec.to_builtins(identity(unrelated.pid)) | {"pid": pid})
    assert "not believed: " in (report := recover(state, task)) and "a0.jsonl, line 2: " in report
    assert unrelated.poll() is None


def test_a_process_that_leads_no_group_is_left_alone_and_so_is_this_one(state, task):
    """Its group is that of this test, and would be ended with it."""
    process = sleeping(str(state.out / task.id))
    try:
        for pid, run in ((process.pid, state.out / task.id), (os.getpid(), sys.argv[0]), (1, "init")):
            assert "does not lead a session" in why_not_own(identity(pid), run)
        forge(state, task, msgspec.to_builtins(identity(process.pid)))
        assert "it does not lead a session and process group of its own" in recover(state, task)
        assert process.poll() is None
    finally:
        ended(process)


def test_a_process_of_another_user_is_left_alone(state, task, monkeypatch):
    process = sleeping(str(state.out / task.id), start_new_session=True)
    try:
        forge(state, task, msgspec.to_builtins(identity(process.pid)))
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert "it belongs to another user" in recover(state, task)
        assert process.poll() is None
    finally:
        ended(process)


def test_the_launch_of_the_task_itself_is_ended(state, task, unrelated):
    process = sleeping("--out", str(state.out / task.id), start_new_session=True)
    try:
        state.begin(task, 1, "a")
        state.started(task, 1, process.pid)
        report = recover(state, task)
        assert f"{task.id}: still runs without its runner as process {process.pid}; it is ended" in report
        assert process.wait(10) == -signal.SIGTERM
        assert unrelated.poll() is None
    finally:
        ended(process)


def test_what_does_not_end_is_told_and_not_waited_for_for_ever(monkeypatch):
    from jobs import launcher

    sent = []
    monkeypatch.setattr(os, "killpg", lambda *of: sent.append(of))

    def wait(_):
        raise subprocess.TimeoutExpired("", 0)

    with pytest.raises(StateError, match=r"process 7 does not end, not even by SIGKILL"):
        launcher.stop(7, wait)
    assert sent == [(7, signal.SIGTERM), (7, signal.SIGKILL)]
    sent.clear()
    with pytest.raises(StateError):
        launcher.stop(7, wait, still=lambda: False)
    assert sent == [], "the number is another process's by now"


# --- the lock ---


def hold(state, **changes):
    """A lock of this process, with `changes`."""
    held = msgspec.to_builtins(identity(os.getpid())) | {"since": OLD} | changes
    state.lock_file.write_text(json.dumps({k: v for k, v in held.items() if v is not ...}))
    return held


def test_a_lock_from_before_this_boot_is_removed_and_one_of_another_machine_of_that_name_is_not(state):
    hold(state, boot="00000000-0000-0000-0000-000000000000")
    with state.lock() as remark:
        assert "removed the lock of a runner that is gone" in remark
    hold(state, boot="00000000-0000-0000-0000-000000000000", since=LATER)
    with pytest.raises(Locked), state.lock():
        pass
    assert state.lock_file.exists()


@pytest.mark.parametrize(
    "changes",
    [{"start": None}, {"boot": ...}, {"namespace": "pid:[1]"}, {"pid": 0}, {"pid": "1"}, {"since": ...}],
)
def test_a_lock_that_leaves_a_doubt_stays(state, changes):
    hold(state, **changes)
    before = state.lock_file.read_text()
    assert state.running()
    with pytest.raises(Locked, match="remove its lock: rm "), state.lock():
        pass
    assert state.lock_file.read_text() == before


def special(path, kind, outside):
    """Put something in the place of the file `path` that is none."""
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "link":
        outside.write_text("{}\n")
        path.symlink_to(outside)
    elif kind == "dangling link":
        path.symlink_to(outside)
    elif kind == "sparse":
        with open(path, "wb") as file:
            file.truncate(40 * 2**30)
    else:
        path.write_bytes(b"\xff\xfe\x00" * 10)


KINDS = ["fifo", "directory", "link", "dangling link", "sparse", "bytes"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_in_the_place_of_a_lock_stays_and_is_told(state, tmp_path, kind):
    special(state.lock_file, kind, tmp_path / "outside")
    assert state.running()
    with pytest.raises(Locked, match="someone who left an unreadable lock"), state.lock():
        pass
    assert os.path.lexists(state.lock_file)
    assert not (tmp_path / "outside").exists() or (tmp_path / "outside").read_text() == "{}\n"


def test_a_runner_whose_lock_was_replaced_leaves_that_of_the_other(state):
    with state.lock():
        state.lock_file.unlink()
        other = hold(state, host="elsewhere")
    assert json.loads(state.lock_file.read_text()) == other


def test_a_lock_that_cannot_be_written_leaves_none(state, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("jobs.state.json.dump", full)
    with pytest.raises(StateError, match="No space left on device"), state.lock():
        pass
    assert not state.lock_file.exists()


# --- journals, directories and logs in whose place something else lies ---


@pytest.mark.parametrize("kind", KINDS[:-1])
def test_a_journal_that_is_no_regular_file_of_a_sane_size_is_refused(state, task, tmp_path, kind):
    special(state.journal, kind, tmp_path / "outside")
    with pytest.raises(Refused, match=r"a0.jsonl: "):
        survey(state.out, [task])
    if kind != "sparse":
        with pytest.raises(Refused, match=r"a0.jsonl: .*move it away"):
            state.begin(task, 1, "a")
    assert not (tmp_path / "outside").exists() or (tmp_path / "outside").read_text() == "{}\n"


def contents(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*"))


def attempt(workload):
    """Begin to run the campaign, with a launcher that would write if it were called."""
    launcher = Launcher(lambda ranks, threads: ["false"], {})
    return run(workload, 0, launcher, lambda _: None, allocation_id="a")


@pytest.mark.parametrize("name", ["state", "logs", "failed", "TASK"])
@pytest.mark.parametrize("kind", ["link", "dangling link", "file"])
def test_a_link_in_place_of_a_directory_is_refused_and_nothing_is_written_behind_it(
    workload, state, task, tmp_path, name, kind
):
    outside = tmp_path / "outside"
    if kind != "dangling link":
        outside.mkdir()
        (outside / "mine").touch()
    place = state.out / (task.id if name == "TASK" else name)
    if place.exists():
        place.rmdir()
    place.symlink_to(outside) if kind != "file" else place.write_text("")
    with pytest.raises(Refused, match=rf"{place}: is a (symbolic link|file), .*move it away"):
        attempt(workload)
    if kind == "link":
        assert [path.name for path in outside.iterdir()] == ["mine"]
    assert outside.exists() == (kind != "dangling link")


def test_the_run_of_a_finished_task_that_is_a_link_is_not_read(state, task, tmp_path):
    state.begin(task, 1, "a")
    state.end(task, 1, "done", "")
    finish(state, task).rename(tmp_path / "elsewhere")
    (state.out / task.id).symlink_to(tmp_path / "elsewhere")
    (standing,) = survey(state.out, [task])
    assert standing.state == "left" and "is a symbolic link" in standing.reason


def test_what_is_moved_aside_stays_in_the_directory_and_replaces_nothing(state, task, tmp_path):
    run = finish(state, task)
    (state.out / "failed" / f"{task.id}.1").symlink_to(tmp_path / "nowhere")
    (state.out / "failed" / f"{task.id}.1+").mkdir()
    assert state.move_aside(task, 1) == f"failed/{task.id}.1++"
    assert not run.exists() and not (tmp_path / "nowhere").exists()
    finish(state, task)
    (state.out / "failed").rename(tmp_path / "kept")
    (state.out / "failed").symlink_to(tmp_path / "kept")
    with pytest.raises(Refused, match="failed: is a symbolic link"):
        state.move_aside(task, 1)
    assert run.is_dir()


@pytest.mark.parametrize("kind", ["fifo", "link", "dangling link", "directory"])
def test_a_log_is_always_a_new_file(state, task, tmp_path, kind):
    special(state.log(task, 1), kind, tmp_path / "outside")
    assert state.next_attempt(task) == 2


def test_the_identity_of_a_process_has_all_that_tells_it_from_another():
    here = identity(os.getpid())
    assert here.host == socket.gethostname() and here.start > 0 and here.boot and here.namespace
    assert msgspec.convert(msgspec.to_builtins(here), Process) == here


def test_an_attempt_whose_end_was_lost_is_over_when_a_later_one_is(state, task):
    state.begin(task, 1, "a")
    state.begin(task, 2, "a")
    state.end(task, 2, FAILED, "why")
    assert state.record(task).open is None
