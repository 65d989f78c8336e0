"""Checks whether a recorded process is alive. Its pid alone is not enough: it may be reused, or be of another host."""

from __future__ import annotations

import os
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from jobs.records import Lock, Process
from miniapps.system.environment import boot


class _Now(NamedTuple):
    """Facts about a process, from /proc."""

    state: str
    group: int
    session: int
    start: int  # clock ticks from the boot


def identity(pid: int) -> Process:
    """The identity of the process `pid` of this host; its start is None if it is unknown."""
    now = _now(pid)
    return Process(
        host=socket.gethostname(),
        pid=pid,
        start=now.start if now else None,
        boot=boot() or None,
        namespace=_namespace(),
    )


def alive(process: Process) -> bool | None:
    """True if `process` is alive: a process with its host, boot, pid and start; None if this host cannot decide."""
    here = (socket.gethostname(), boot() or None, _namespace())
    if (process.host, process.boot, process.namespace) != here:
        return None
    now = _now(process.pid)
    if now is None:
        return _nothing_known(process.pid)
    if now.state in "ZX":  # ended, but its parent has not yet read the exit code
        return False
    return None if process.start is None else now.start == process.start


def gone(held: Lock) -> bool:
    """True if the process that held a lock has certainly ended, by itself or by a reboot of this host."""
    living = alive(held)
    return living is False or (living is None and _before_this_boot(held))


def why_not_own(process: Process, run: Path) -> str:
    """The reason why the live `process` may not be the launch of the run in the directory `run`; "" if it is.

    A launch leads its own session, and has the directory on its command line."""
    now = _now(process.pid)
    folder = Path(f"/proc/{process.pid}")
    try:
        owner = folder.stat().st_uid
        words = (folder / "cmdline").read_bytes().split(b"\0")
    except OSError:
        return "what it is cannot be seen"
    if now is None or process.pid <= 1 or not now.group == now.session == process.pid:
        return "it does not lead a session and process group of its own, as every launch does"
    if os.getsid(0) == process.pid:
        return "this program runs in its session"
    if owner != os.geteuid():
        return "it belongs to another user"
    if os.fsencode(run) not in words:
        return f"{run} is not on its command line"
    return ""


def _now(pid: int) -> _Now | None:
    """The facts about the process `pid`; None if it does not exist, or without /proc."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return _Now(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _nothing_known(pid: int) -> bool | None:
    """False if no process has the number `pid`, else None."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return None


def _namespace() -> str | None:
    """The pid namespace of this process, since containers on one host have several; None if unknown."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def _before_this_boot(held: Lock) -> bool:
    """True if a lock of this host is of an earlier boot: another id, and from before this one began."""
    now = boot()
    if held.host != socket.gethostname() or not (held.boot and now) or held.boot == now:
        return False
    try:
        words = Path("/proc/stat").read_text().split()
        began = datetime.fromtimestamp(int(words[words.index("btime") + 1]), UTC)
        return datetime.fromisoformat(held.since) < began
    except (OSError, ValueError, TypeError, OverflowError):
        return False
