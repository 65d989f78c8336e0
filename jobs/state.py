"""The directory of a campaign: what is finished, what failed, what runs; and the lock against two runners.

    OUT/TASK-ID/            the run of a task: traces and result.json
    OUT/failed/TASK-ID.N/   what the N-th attempt left, if it failed or was interrupted; never deleted
    OUT/logs/TASK-ID.N.txt  what the N-th attempt printed
    OUT/state/aK.jsonl      one line at the beginning and one at the end of every attempt in allocation K
    OUT/state/aK.lock       who runs allocation K now

Lines are added and files renamed, nothing is written over: after an interruption at any moment, what is on disk says
what is left to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shlex
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.plan import Task
from miniapps.outcome import RESULT
from miniapps.trace import TraceError
from miniapps.trace.reader import read_all, trace_files

DONE, CHECK_FAILED, FAILED, TO_RETRY, INTERRUPTED, RUNNING, LEFT = (
    "done",
    "check failed",
    "failed",
    "to retry",
    "interrupted",
    "running",
    "left",
)
FINISHED = (DONE, CHECK_FAILED)
OVER = (*FINISHED, FAILED)
BAD_USAGE = 2  # exit code of an application that refuses its options: it would do so again


class StateError(Exception):
    """The directory of a campaign cannot be used; the message says why and what to do."""


class Locked(StateError):
    """Another runner works on the same allocation."""


@dataclass
class Record:
    """What is known of one task: the beginnings and ends of its attempts."""

    begun: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)

    @property
    def open(self) -> dict[str, Any] | None:
        """The attempt that has begun and of which no end is known."""
        ended = {end["attempt"] for end in self.ended}
        return next((begin for begin in reversed(self.begun) if begin["attempt"] not in ended), None)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The ends of attempts that failed by themselves."""
        return [end for end in self.ended if end["outcome"] == FAILED]

    @property
    def last(self) -> dict[str, Any] | None:
        """The end of the last attempt."""
        return self.ended[-1] if self.ended else None

    def state(self, task: Task, running: bool = False, forgiven: int = 0) -> str:
        """One of the words above; `running`: whether a runner is at work, `forgiven`: failures that do not count."""
        if self.open:
            return RUNNING if running else INTERRUPTED
        if self.last is None:
            return LEFT
        if self.last["outcome"] != FAILED:
            return self.last["outcome"]
        tried = len(self.failures) - forgiven
        return FAILED if tried > task.retries or (tried and self.last["code"] == BAD_USAGE) else TO_RETRY


def look(run: Path, size: int) -> tuple[str, str]:
    """(state, reason) of what is in the directory `run` of a task on `size` ranks: DONE, or CHECK_FAILED, if
    result.json says so and the trace of every rank is complete; LEFT where there is nothing; else FAILED."""
    try:
        if not run.is_dir() or not any(run.iterdir()):
            return LEFT, "nothing was written"
        result = json.loads((run / RESULT).read_text(encoding="utf-8"))
        status, code = result["status"], result["exit_code"]
        reason = result.get("error", "")
    except FileNotFoundError:
        return FAILED, f"no {RESULT}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return FAILED, f"{run / RESULT} cannot be read: {error}"
    if status != "done":
        return FAILED, reason or f"status {status!r} in {RESULT}"
    try:
        traces = [trace for path in trace_files(run) for trace in read_all(path, tables=())]
    except TraceError as error:
        return FAILED, str(error)
    if incomplete := [t.attributes["rank"] for t in traces if not t.complete]:
        return FAILED, f"the trace of rank {incomplete[0]} is incomplete"
    if len(traces) != size:
        return FAILED, f"traces of {len(traces)} ranks, and {size} were asked for"
    if code:
        failed = [check["name"] for check in result.get("checks", ()) if not check["passed"]]
        return CHECK_FAILED, f"check failed: {', '.join(dict.fromkeys(failed))}"
    return DONE, ""


class State:
    """The state of one allocation of a campaign; `out` is the directory of the campaign."""

    def __init__(self, out: Path, allocation: int):
        self.out = out
        self.allocation = allocation
        self.journal = out / "state" / f"a{allocation}.jsonl"
        self.lock_file = out / "state" / f"a{allocation}.lock"

    def create(self) -> None:
        """Make the directories. Raises StateError."""
        try:
            for folder in (self.out, *(self.out / name for name in ("state", "logs", "failed"))):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StateError(
                f"{error.filename}: cannot be created: {error.strerror}; choose another `out` in the campaign"
            ) from None

    def records(self) -> dict[str, Record]:
        """What is known, by id of the task. Raises StateError where the journal cannot be read."""
        found: dict[str, Record] = {}
        try:
            lines = self.journal.read_text(encoding="utf-8", errors="replace").splitlines()
        except FileNotFoundError:
            return found
        except OSError as error:
            raise StateError(f"{self.journal}: cannot be read: {error.strerror}") from None
        for line in lines:
            try:
                entry = json.loads(line)
                record = found.setdefault(entry["task"], Record())
                (record.ended if "outcome" in entry else record.begun).append(entry)
            except (ValueError, KeyError, TypeError):  # cut off by a full disk or a kill: as if not written
                continue
        return found

    def next_attempt(self, task: Task) -> int:
        """The number of the next attempt, from 1; no log of another attempt has it."""
        record = self.records().get(task.id, Record())
        attempt = 1 + max((begin["attempt"] for begin in record.begun), default=0)
        while self.log(task, attempt).exists():
            attempt += 1
        return attempt

    def begin(self, task: Task, attempt: int, allocation_id: str) -> None:
        """Write down that an attempt begins."""
        self._add({"task": task.id, "attempt": attempt, "at": _now(), "host": socket.gethostname(),
                   "allocation_id": allocation_id})  # fmt: skip

    def started(self, task: Task, attempt: int, pid: int) -> None:
        """Write down the process of an attempt, so that one that outlives its runner is found."""
        self._add({"task": task.id, "attempt": attempt, "at": _now(), "host": socket.gethostname(),
                   "process": identity(pid)})  # fmt: skip

    def end(
        self,
        task: Task,
        attempt: int,
        outcome: str,
        reason: str,
        code: int | None = None,
        seconds: float | None = None,
    ) -> str:
        """Move what an attempt left aside if it is not finished, and write down how it ended; returns where to."""
        moved = "" if outcome in FINISHED else self.move_aside(task, attempt)
        self._add({"task": task.id, "attempt": attempt, "at": _now(), "outcome": outcome, "reason": reason,
                   "code": code, "seconds": seconds, "moved": moved})  # fmt: skip
        return moved

    def move_aside(self, task: Task, attempt: int) -> str:
        """Rename the directory of a task to one in failed/ that is not there yet; "" where there is none."""
        run = self.out / task.id
        if not run.exists():
            return ""
        target = self.out / "failed" / f"{task.id}.{attempt}"
        while target.exists():
            target = target.with_name(target.name + "+")
        try:
            run.rename(target)
        except OSError as error:
            raise StateError(
                f"{run}: cannot be moved to {target}: {error.strerror}; move it yourself"
            ) from None
        return str(target.relative_to(self.out))

    def log(self, task: Task, attempt: int) -> Path:
        """The file for what an attempt prints."""
        return self.out / "logs" / f"{task.id}.{attempt}.txt"

    def _add(self, entry: Mapping[str, Any]) -> None:
        """Append a line, on disk when this returns; whatever was cut off before it stays a line of its own."""
        text = "\n" if _cut_off(self.journal) else ""
        try:
            with open(self.journal, "a", encoding="utf-8") as file:
                file.write(text + json.dumps(entry) + "\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise StateError(
                f"{self.journal}: cannot be written: {error.strerror}; make room and start again: what is finished "
                "is not repeated"
            ) from None

    @contextlib.contextmanager
    def lock(self) -> Iterator[str]:
        """Be the only runner of this allocation; gives a remark about a stale lock that was removed, or "".
        Raises Locked."""
        remark = ""
        try:
            with _alone(self.lock_file.parent):
                if held := self.holder():
                    if not _gone(held):
                        raise Locked(self._locked(held))
                    self.lock_file.unlink()
                    remark = f"removed the lock of a runner that is gone: {_who(held)}"
                with open(self.lock_file, "x", encoding="utf-8") as file:
                    json.dump(identity(os.getpid()) | {"since": _now()}, file)
        except FileExistsError:
            raise Locked(self._locked(self.holder() or {})) from None
        except OSError as error:
            raise StateError(
                f"{self.lock_file}: cannot be written: {error.strerror}; make room there"
            ) from None
        try:
            yield remark
        finally:
            self.lock_file.unlink(missing_ok=True)

    def holder(self) -> dict[str, Any] | None:
        """Who holds the lock: host, pid, start and since; None if nobody, {} if that cannot be read."""
        try:
            held = json.loads(self.lock_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValueError):
            return {}
        return held if isinstance(held, dict) else {}

    def running(self) -> bool:
        """Whether a runner is at work, as far as can be seen from this host."""
        held = self.holder()
        return held is not None and not _gone(held)

    def _locked(self, held: Mapping[str, Any]) -> str:
        return (
            f"allocation {self.allocation} is being run already by {_who(held)}; two runners would do everything "
            f"twice. If that one has ended (look there, or into the queue), remove its lock: "
            f"rm {shlex.quote(str(self.lock_file))}"
        )


@dataclass(frozen=True)
class Standing:
    """Where one task stands; `reason` is for what is not simply done or left."""

    task: Task
    record: Record
    state: str
    reason: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.state in OVER


def survey(out: Path, tasks: Iterable[Task]) -> list[Standing]:
    """Where all tasks stand, in their order. Raises StateError."""
    states: dict[int, tuple[dict[str, Record], bool]] = {}
    found = []
    for task in tasks:
        if task.allocation not in states:
            state = State(out, task.allocation)
            states[task.allocation] = state.records(), state.running()
        records, running = states[task.allocation]
        record = records.get(task.id, Record())
        word = record.state(task, running)
        reason = record.last["reason"] if record.last and word != LEFT else ""
        if word in FINISHED and (trouble := _unreadable(out / task.id / RESULT)):
            word, reason = LEFT, f"was finished, but {trouble}; it will be run again"
        found.append(Standing(task, record, word, reason))
    return found


def _unreadable(result: Path) -> str:
    """Why the result.json of a finished task is not one; a quick look, without the traces."""
    try:
        status = json.loads(result.read_text(encoding="utf-8"))["status"]
    except FileNotFoundError:
        return f"{result} is gone"
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{result} cannot be read ({error})"
    return "" if status == "done" else f"{result} says {status!r}"


def identity(pid: int) -> dict[str, Any]:
    """What tells a process from any other, also from a later one of the same number on the same host."""
    return {"host": socket.gethostname(), "pid": pid, "start": _start(pid)}


def alive(process: Mapping[str, Any]) -> bool | None:
    """Whether the process of an `identity` is there; None where that cannot be known from this host."""
    if process.get("host") != socket.gethostname() or not isinstance(process.get("pid"), int):
        return None
    try:
        os.kill(process["pid"], 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    start = _start(process["pid"])
    return start is None or process.get("start") in (None, start)


def measured(standings: Iterable[Standing]) -> dict[tuple[Any, ...], float]:
    """The longest time in seconds of a finished task, by configuration."""
    found: dict[tuple[Any, ...], float] = {}
    for standing in standings:
        for end in standing.record.ended:
            if end["outcome"] in FINISHED and end.get("seconds"):
                configuration = standing.task.configuration
                found[configuration] = max(end["seconds"], found.get(configuration, 0.0))
    return found


def _gone(held: Mapping[str, Any]) -> bool:
    return alive(held) is False


def _who(held: Mapping[str, Any]) -> str:
    if not held:
        return "someone who left an unreadable lock"
    return f"process {held.get('pid')} on {held.get('host')}, since {held.get('since')}"


def _start(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None where the system does not tell, or a zombie's."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[19])


def _cut_off(path: Path) -> bool:
    try:
        with open(path, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except OSError:
        return False


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Inside, no other process of this host is, where the file system has locks: two that find the same stale lock
    must not both remove it, one of them the other's new one."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
