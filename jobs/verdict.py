"""Judges how an attempt ended: whether the task failed by itself, or a cause outside ended or prevented its launch.

A task has failed if all of its ranks ran and one of them failed. It has not failed if the launcher did not start all of
its ranks, if SIGTERM or Ctrl-C from outside ended them, or if the disk or the process table is full. Before it starts
Python, every rank adds a line to the file `ranks` of its attempt.
"""

from __future__ import annotations

import os
import signal
import sys
from errno import EAGAIN, EDQUOT, ENOSPC
from pathlib import Path

from jobs.plan import Task
from jobs.records import DONE, FAILED, INTERRUPTED, Outcome
from jobs.state import FINISHED, LEFT, look
from miniapps import doctor
from miniapps.untrusted.regular import Refused, open_regular
from miniapps.untrusted.result import read_result

STARTED = (
    '{ echo $$ >> "$0"; } 2> /dev/null; exec "$@"'  # every rank runs it by sh -c, with the file `ranks` as $0
)
TAIL = 4000  # bytes at the end of an output that are searched for a reason
FULL = tuple(os.strerror(number) for number in (ENOSPC, EDQUOT))
NO_PROCESS = os.strerror(EAGAIN)  # the error of fork if the process table is full
NOT_STARTED = (126, 127)  # exit codes of a shell that cannot start its program
# Exit codes of applications, launchers and processes that were ended by SIGINT or SIGTERM.
ASKED = (130, 143, -signal.SIGINT, -signal.SIGTERM)


def judge(run: Path, task: Task, code: int | None, log: Path, ranks: Path, had: float) -> tuple[Outcome, str]:
    """(outcome, reason) of an attempt in the directory `run`.

    `code` is the exit code of its launcher, None if the runner ended it after its ranks `had` that many seconds. `log`
    is the file of its output, `ranks` the file with a line of each rank that started."""
    outcome, reason = look(run, task.ranks)
    if outcome == DONE and code != 0:
        return (
            DONE,
            "complete, but it did not end by itself" if code is None else f"complete, but exit code {code}",
        )
    if outcome in FINISHED:
        return outcome, reason
    started = ranks_started(ranks)
    if disk_full(log):
        return INTERRUPTED, "the disk is full"
    said = doctor.gist(tail(log, "$ "))
    if outcome == LEFT and started < task.ranks:  # not LEFT: a rank that wrote a file had found the others
        some = f"{started} of {task.ranks} ranks" if started else "no rank"
        ended = f"exit code {code}" if code is not None else "in its time"
        return INTERRUPTED, f"the launcher started {some}, {ended}: {said}"
    if code is None and had < task.seconds:
        return INTERRUPTED, "the allocation ends"
    if code is None:
        return FAILED, f"no end after its time of {task.seconds} s"
    told = _told(run)
    if (code if told is None else told) in ASKED:
        return INTERRUPTED, f"ended from outside, exit code {code}: {reason if told is not None else said}"
    if outcome == LEFT and code in NOT_STARTED:
        return INTERRUPTED, f"Python cannot be started there, exit code {code}: {said}"
    if outcome == LEFT and NO_PROCESS in tail(log):
        return INTERRUPTED, f"too many processes there, exit code {code}: {said}"
    return FAILED, f"exit code {code}: {reason if outcome == FAILED else said}"


def ranks_started(ranks: Path) -> int:
    """The number of ranks that have added a line to the file `ranks`."""
    try:
        with open_regular(ranks, most=sys.maxsize) as file:
            return sum(1 for _ in file)
    except (OSError, Refused):
        return 0


def disk_full(log: Path) -> bool:
    """True if the output says that the disk is full."""
    return any(word in tail(log) for word in FULL)


def tail(log: Path, without: str = "\n") -> str:
    """The last TAIL bytes of a log as text, without lines that begin with `without`."""
    try:
        with open_regular(log, most=sys.maxsize) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL))
            text = file.read(TAIL).decode("utf-8", "replace")
    except (OSError, Refused):
        return ""
    return "\n".join(line for line in text.splitlines() if not line.startswith(without))


def _told(run: Path) -> int | None:
    """The exit code that the application wrote into result.json; None if it wrote none."""
    try:
        return read_result(run).exit_code
    except (OSError, Refused):
        return None
