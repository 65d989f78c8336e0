"""Keeps the state of tasks in the directory of a campaign, and a lock against two runners.

    OUT/TASK-ID/            the run of a task: traces and result.json
    OUT/failed/TASK-ID.N/   the files of the N-th attempt, if it failed or was interrupted; never deleted
    OUT/logs/TASK-ID.N.txt  the output of the N-th attempt
    OUT/logs/TASK-ID.N.ranks  a line from every rank that it started
    OUT/state/aK.jsonl      lines at the beginning and at the end of every attempt in allocation K
    OUT/state/aK.lock       the process that runs allocation K now

Lines are added and files renamed, but nothing is overwritten: after an interruption at any moment the files determine
which tasks are left.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from jobs.allocation import is_over, own_start
from jobs.files import append, is_folder, rename_new
from jobs.plan import Task
from jobs.processes import alive, gone, identity
from jobs.records import (
    CHECK_FAILED,
    DONE,
    FAILED,
    INTERRUPTED,
    Begin,
    End,
    Lock,
    Outcome,
    Process,
    read_journal,
    read_lock,
)
from jobs.words import cut, quoted
from miniapps.runner.outcome import RESULT
from miniapps.trace import TraceError
from miniapps.trace.reader import read_all, trace_files
from miniapps.untrusted.regular import Refused
from miniapps.untrusted.result import read_result
from miniapps.untrusted.text import printable

TO_RETRY, RUNNING = "to retry", "running"
LEFT: Final = "left"
FINISHED: tuple[Outcome, ...] = (DONE, CHECK_FAILED)
OVER = (*FINISHED, FAILED)
BAD_USAGE = 2  # exit code of an application that refuses its options; it is not repeated
NOT_VERIFIED = 3  # exit code of an application with a failed check
FOLDERS = ("state", "logs", "failed")
PATIENCE_S = 10  # longest wait for another process of this host that checks a lock


class StateError(Exception):
    """The directory of a campaign cannot be used; the message says why and what to do."""


class Locked(StateError):
    """Another runner works on the same allocation."""


@dataclass
class Record:
    """The record of one task: the beginnings and ends of its attempts."""

    begun: list[Begin] = field(default_factory=list)
    ended: list[End] = field(default_factory=list)

    @property
    def open(self) -> Begin | None:
        """The beginning of the last attempt, if it has no end; earlier attempts are over, since runners take turns."""
        last = self.begun[-1] if self.begun else None
        return None if last and any(end.attempt == last.attempt for end in self.ended) else last

    @property
    def failures(self) -> list[End]:
        """The ends of attempts that failed by themselves."""
        return [end for end in self.ended if end.outcome == FAILED]

    @property
    def last(self) -> End | None:
        """The end of the last attempt."""
        return self.ended[-1] if self.ended else None

    def state(self, task: Task, running: bool = False, forgiven: int = 0) -> str:
        """The state of the task, such as DONE or LEFT.

        `running`: True if a runner is at work; `forgiven`: the number of failures that do not count."""
        if self.open:
            return RUNNING if running else INTERRUPTED
        if self.last is None:
            return LEFT
        if self.last.outcome != FAILED:
            return self.last.outcome
        tried = len(self.failures) - forgiven
        return FAILED if tried > task.retries or (tried and self.last.code == BAD_USAGE) else TO_RETRY


def look(run: Path, size: int) -> tuple[Outcome | Literal["left"], str]:
    """(state, reason) of the directory `run` of a task on `size` ranks.

    DONE or CHECK_FAILED, if result.json states it and the traces that it names exist, are complete and of every rank;
    LEFT, if the directory is missing or empty; else FAILED."""
    try:
        if not is_folder(run) or not any(run.iterdir()):
            return LEFT, "nothing was written"
        result = read_result(run)
        if result.status != "done":
            return FAILED, cut(result.error or f"status {quoted(result.status)} in {RESULT}")
        traces = [trace for path in trace_files(run) for trace in read_all(path, tables=())]
    except FileNotFoundError:
        return FAILED, f"no {RESULT}"
    except (Refused, TraceError, OSError) as error:
        return FAILED, cut(str(error))
    if incomplete := [trace.attributes["rank"] for trace in traces if not trace.complete]:
        return FAILED, f"the trace of rank {incomplete[0]} is incomplete"
    if len(traces) != size:
        return FAILED, f"traces of {len(traces)} ranks, and {size} were asked for"
    if sorted(trace.attributes["rank"] for trace in traces) != list(range(size)):
        return FAILED, f"traces of other ranks than 0 to {size - 1}: a file was copied or renamed"
    if {trace.path.name: trace.digest for trace in traces} != result.traces:
        return FAILED, f"{RESULT} was written for other traces than those beside it"
    failed = [check.name for check in result.checks if not check.passed]
    if result.exit_code != (NOT_VERIFIED if failed else 0):
        return (
            FAILED,
            f"{RESULT} contradicts itself: exit code {result.exit_code}, {len(failed)} failed checks",
        )
    if failed:
        return CHECK_FAILED, cut(f"check failed: {', '.join(dict.fromkeys(failed))}")
    return DONE, ""


class State:
    """The state of one allocation of a campaign; `out` is the directory of the campaign."""

    def __init__(self, out: Path, allocation: int):
        self.out = out
        self.allocation = allocation
        self.journal = out / "state" / f"a{allocation}.jsonl"
        self.lock_file = out / "state" / f"a{allocation}.lock"

    def create(self) -> None:
        """Makes the directories. Raises StateError; Refused if one of them is a link or a file."""
        try:
            for folder in (self.out, *(self.out / name for name in FOLDERS)):
                if not is_folder(folder):
                    folder.mkdir(parents=True)
        except OSError as error:
            raise StateError(
                f"{error.filename}: cannot be created: {error.strerror}; choose another `out` in the campaign"
            ) from None

    def check(self, tasks: Iterable[Task]) -> None:
        """Raises Refused if the run of a task exists and is no directory."""
        for task in tasks:
            is_folder(self.out / task.id)

    def read(self) -> tuple[dict[str, Record], list[str]]:
        """({task id: its record}, sentences on invalid lines of the journal).

        Raises StateError if the journal cannot be read, Refused if it is no regular file or too large."""
        records: dict[str, Record] = {}
        try:
            entries, doubts = read_journal(self.journal) if is_folder(self.journal.parent) else ([], [])
        except FileNotFoundError:
            return {}, []
        except OSError as error:
            raise StateError(f"{self.journal}: cannot be read: {error.strerror}") from None
        for entry in entries:
            record = records.setdefault(entry.task, Record())
            if isinstance(entry, End):
                record.ended.append(entry)
            else:
                record.begun.append(entry)
        return records, doubts

    def record(self, task: Task) -> Record:
        """The record of `task`. Raises the errors of `read`."""
        return self.read()[0].get(task.id, Record())

    def next_attempt(self, task: Task) -> int:
        """The number of the next attempt, from 1; no existing log has this number."""
        attempt = 1 + max((begin.attempt for begin in self.record(task).begun), default=0)
        while os.path.lexists(self.log(task, attempt)) or os.path.lexists(self.ranks(task, attempt)):
            attempt += 1
        return attempt

    def begin(self, task: Task, attempt: int, allocation_id: str) -> None:
        """Records that an attempt begins."""
        self._add(Begin(task=task.id, attempt=attempt, at=_time(), host=socket.gethostname(),
                        allocation_id=allocation_id))  # fmt: skip

    def started(self, task: Task, attempt: int, pid: int) -> None:
        """Records the process of an attempt, so that it can be found if it outlives its runner."""
        self._add(Begin(task=task.id, attempt=attempt, at=_time(), host=socket.gethostname(),
                        process=identity(pid)))  # fmt: skip

    def end(
        self,
        task: Task,
        attempt: int,
        outcome: Outcome,
        reason: str,
        code: int | None = None,
        seconds: float | None = None,
    ) -> str:
        """Records how an attempt ended; first moves its run to failed/ if it is not finished.

        Returns the new path of the run below `out`; "" if it was not moved."""
        moved = "" if outcome in FINISHED else self.move_aside(task, attempt)
        self._add(End(task=task.id, attempt=attempt, at=_time(), outcome=outcome, reason=cut(reason), code=code,
                      seconds=seconds, moved=moved))  # fmt: skip
        return moved

    def move_aside(self, task: Task, attempt: int) -> str:
        """Renames the directory of a task to a new one in failed/; returns its path below `out`, "" if there is none.

        Raises StateError; Refused if one of them is no directory."""
        run, failed = self.out / task.id, self.out / "failed"
        if not is_folder(run):
            return ""
        is_folder(failed)
        try:
            return str(rename_new(run, failed / f"{task.id}.{attempt}").relative_to(self.out))
        except OSError as error:
            raise StateError(
                f"{run}: cannot be moved to {failed}: {error.strerror}; move it yourself"
            ) from None

    def log(self, task: Task, attempt: int) -> Path:
        """The file for the output of an attempt."""
        return self.out / "logs" / f"{task.id}.{attempt}.txt"

    def ranks(self, task: Task, attempt: int) -> Path:
        """The file to which every rank of an attempt adds a line when it starts."""
        return self.out / "logs" / f"{task.id}.{attempt}.ranks"

    def _add(self, entry: Begin | End) -> None:
        """Adds `entry` to the journal. Raises StateError."""
        try:
            is_folder(self.journal.parent)
            append(self.journal, entry)
        except OSError as error:
            raise StateError(
                f"{self.journal}: cannot be written: {error.strerror}; make room and start again: finished tasks "
                "are not repeated"
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[str]:
        """Holds the lock of this allocation in the block; yields a remark about a stale lock that was removed, or "".

        Raises Locked, StateError."""
        own = Lock(since=_time(), start_of_job=own_start(), **msgspec.to_builtins(identity(os.getpid())))
        remark = ""
        try:
            with _alone(self.lock_file.parent):
                if held := self.holder():
                    if not (gone(held) or (alive(held) is None and is_over(held.start_of_job))):
                        raise Locked(self._locked(_who(held)))
                    self.lock_file.unlink()
                    remark = f"removed the lock of a runner that is gone: {_who(held)}"
                self._take(own)
        except (
            FileExistsError,
            Refused,
        ) as error:  # another host took the lock first, or another program made the file
            raise Locked(self._locked(_who(None, error))) from None
        except OSError as error:
            raise StateError(
                f"{self.lock_file}: cannot be written: {error.strerror}; make room there"
            ) from None
        try:
            yield remark
        finally:
            with contextlib.suppress(Refused, OSError):
                if self.holder() == own:  # else a user removed this lock, and another runner took it
                    self.lock_file.unlink()

    def _take(self, own: Lock) -> None:
        """Writes the lock, or removes the incomplete file."""
        with open(self.lock_file, "x", encoding="utf-8") as file:
            try:
                json.dump(msgspec.to_builtins(own), file)
                file.flush()
            except OSError:
                self.lock_file.unlink()
                raise

    def holder(self) -> Lock | None:
        """The holder of the lock, None if there is none. Raises Refused if the lock cannot be read."""
        try:
            return read_lock(self.lock_file) if is_folder(self.lock_file.parent) else None
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Refused(f"{printable(str(self.lock_file))}: cannot be read: {error.strerror}") from None

    def running(self) -> bool:
        """True if a runner is at work, as far as this host can see."""
        try:
            held = self.holder()
        except Refused:
            return True
        return held is not None and not gone(held)

    def _locked(self, who: str) -> str:
        return (
            f"allocation {self.allocation} is being run already by {who}; two runners would do everything "
            f"twice. If that one has ended (look there, or into the queue), remove its lock: "
            f"rm {shlex.quote(str(self.lock_file))}"
        )


@dataclass(frozen=True)
class Standing:
    """The state of one task; `reason` explains a state other than done or left."""

    task: Task
    record: Record
    state: str
    reason: str = ""

    @property
    def over(self) -> bool:
        """True if the task needs no further work."""
        return self.state in OVER


def survey(
    out: Path, tasks: Iterable[Task], doubt: Callable[[str], object] = lambda sentence: None
) -> list[Standing]:
    """The standing of each task, in order. `doubt` gets a sentence on every invalid line of a journal.

    Raises StateError, Refused.
    """
    states: dict[int, tuple[dict[str, Record], bool]] = {}
    standings = []
    for task in tasks:
        if task.allocation not in states:
            state = State(out, task.allocation)
            known, doubts = state.read()
            for sentence in doubts:
                doubt(sentence)
            states[task.allocation] = known, state.running()
        records, running = states[task.allocation]
        record = records.get(task.id, Record())
        word = record.state(task, running)
        reason = record.last.reason if record.last and word != LEFT else ""
        if word in FINISHED and (trouble := _unreadable(out / task.id)):
            word, reason = LEFT, f"was finished, but {trouble}; it will be run again"
        standings.append(Standing(task, record, word, cut(reason)))
    return standings


def _unreadable(run: Path) -> str:
    """The reason why the result.json of a finished task is invalid; "" if it is valid. Does not check traces."""
    try:
        status = read_result(run).status if is_folder(run) else None
    except FileNotFoundError:
        status = None
    except (Refused, OSError) as error:
        return str(error)
    if status is None:
        return f"{run / RESULT} is gone"
    return "" if status == "done" else f"{run / RESULT} says {quoted(status)}"


def measured(standings: Iterable[Standing]) -> dict[tuple[Any, ...], float]:
    """{configuration: longest time of a finished task in seconds}."""
    seconds: dict[tuple[Any, ...], float] = {}
    for standing in standings:
        for end in standing.record.ended:
            if end.outcome in FINISHED and end.seconds:
                configuration = standing.task.configuration
                seconds[configuration] = max(end.seconds, seconds.get(configuration, 0.0))
    return seconds


def _who(held: Process | None, why: object = "") -> str:
    if isinstance(held, Lock):
        return printable(f"process {held.pid} on {held.host}, since {held.since}")
    return f"someone who left an unreadable lock ({why})"


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Excludes other processes of this host from the block, if the file system has locks. Raises Locked.

    Otherwise two processes could find the same stale lock, and the second could remove the new lock of the first."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        until = time.monotonic() + PATIENCE_S
        while not _locked(handle):
            if time.monotonic() > until:
                raise Locked(f"{folder}: another process of this host holds it; see which: fuser -v {folder}")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    """True if the caller may go on: it has the lock, or the file system has no locks."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def _time() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
