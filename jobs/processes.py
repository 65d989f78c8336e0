"""Checks whether a recorded process is alive: its number alone may be reused, by another boot or host."""

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
    """What tells the process `pid` of this host from any other; its start None where it cannot be known."""
    now = _now(pid)
    return Process(
        host=socket.gethostname(),
        pid=pid,
        start=now.start if now else None,
        boot=boot() or None,
        namespace=_namespace(),
    )


def alive(process: Process) -> bool | None:
    """Whether `process` is there: True where host, boot, number and start are those of a process that is there; None
    where it cannot be known from here."""
    here = (socket.gethostname(), boot() or None, _namespace())
    if (process.host, process.boot, process.namespace) != here:
        return None
    now = _now(process.pid)
    if now is None:
        return _nothing_known(process.pid)
    if now.state in "ZX":  # ended, and not yet asked for its exit code
        return False
    return None if process.start is None else now.start == process.start


def gone(held: Lock) -> bool:
    """True if the process that held a lock has certainly ended, by itself or by a reboot of this host."""
    living = alive(held)
    return living is False or (living is None and _before_this_boot(held))


def why_not_own(process: Process, run: Path) -> str:
    """Why `process`, alive, may be another than the launch of the run in the directory `run`, which leads a session of
    its own, and has the directory on its command line; "" where it is that launch."""
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
    """None where there is no such process, or no /proc that tells."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return _Now(fields[0].decode(), int(fields[2]), int(fields[3]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None


def _nothing_known(pid: int) -> bool | None:
    """False where no process has the number `pid`, else None."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return None


def _namespace() -> str | None:
    """The namespace in which pids count here: containers on one host have several."""
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
