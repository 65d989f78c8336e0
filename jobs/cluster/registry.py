"""Registers clusters, in a directory of root for each, and removes clusters that are no longer wanted.

A cluster made by `up` is wanted until `down`, any other while the process that made it lives. Remains of unwanted
clusters are removed before another cluster is made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
import signal
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from jobs.cluster import iproute
from jobs.cluster.errors import ClusterError, Usage
from jobs.cluster.links import LEAST, MOST, MOST_NODES
from jobs.processes import alive, identity
from jobs.records import Process
from jobs.words import quoted
from miniapps.untrusted.records import read_json
from miniapps.untrusted.regular import Refused

DIRECTORY = Path("/var/lib/fpna-clusters")  # not below /run, where nothing may be executed on some systems
RECORD = "cluster.json"
RECORD_MOST = 2**20
NAME = re.compile(r"[a-z][a-z0-9]{0,15}", re.ASCII)
# The name of a namespace: the cluster, the pid and start of the process that made it, and the part of the cluster.
NAMESPACE = re.compile(
    r"(fpna-([a-z][a-z0-9]{0,15})-([0-9]{1,10})-([0-9]{1,20}))-(n[0-9]{1,3}|switch)", re.ASCII
)
GRACE_S = 2.0  # between SIGTERM and SIGKILL to processes in nodes
END_S = 20.0  # limit for killed processes to disappear

Node = Annotated[int, Meta(ge=1, le=MOST_NODES)]
Rate = Annotated[int, Meta(ge=LEAST, le=MOST)]
_numbers = itertools.count(1)


class Limit(msgspec.Struct, frozen=True):
    """The rate of the port of node `a`, or with `b` the rate between these two nodes."""

    rate: Rate
    a: Node
    b: Node | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a cluster that the kernel does not record."""

    name: Annotated[str, Meta(pattern=rf"\A{NAME.pattern}\Z")]
    nodes: Node
    every: Rate | None
    limits: list[Limit]
    kept: bool  # until `down`, also after its owner has ended
    owner: Process

    @property
    def prefix(self) -> str:
        """The prefix of the names of its namespaces."""
        return f"fpna-{self.name}-{self.owner.pid}-{self.owner.start or 0}"

    @property
    def namespaces(self) -> list[str]:
        """The names of its namespaces, the switch last."""
        return [f"{self.prefix}-n{node}" for node in range(1, self.nodes + 1)] + [f"{self.prefix}-switch"]

    @property
    def folder(self) -> Path:
        """The directory of its files."""
        return DIRECTORY / self.name


def check_name(name: str) -> str:
    """`name`, if it is a valid name of a cluster. Raises Usage."""
    if not NAME.fullmatch(name):
        raise Usage(
            f"{quoted(name)} is no name of a cluster: a small letter, then at most 15 small letters and digits"
        )
    return name


def own_name() -> str:
    """A name that no other cluster of this or another process has."""
    return f"p{os.getpid()}x{next(_numbers)}"


def known() -> list[Record]:
    """The clusters that are wanted, by name."""
    return [record for record in _records() if wanted(record)]


def get(name: str) -> Record:
    """The wanted cluster `name`. Raises Usage if there is none."""
    check_name(name)
    clusters = known()
    for record in clusters:
        if record.name == name:
            return record
    there = f"; there are {', '.join(r.name for r in clusters)}" if clusters else ""
    raise Usage(f"there is no cluster {name!r}{there}; `python -m jobs cluster up` makes one")


def wanted(record: Record) -> bool:
    """True if this cluster is wanted: it is of this boot, and kept until `down`, or the process that made it lives."""
    if record.owner.boot != identity(os.getpid()).boot:
        return False
    return record.kept or alive(record.owner) is not False


def enter(record: Record) -> None:
    """Registers a cluster before it is made. Raises Usage if one of that name exists, ClusterError."""
    _require_directory()
    new = DIRECTORY / f".{record.prefix}"
    try:
        new.mkdir(mode=0o700)
        (new / RECORD).write_bytes(msgspec.json.encode(record))
        os.rename(new, record.folder)  # fails if the target exists
    except OSError as error:
        shutil.rmtree(new, ignore_errors=True)
        if record.folder.exists():
            raise Usage(
                f"a cluster {record.name!r} is up already: `python -m jobs cluster down --name {record.name}` removes "
                "it, --name gives another one a name of its own"
            ) from None
        raise ClusterError(f"{DIRECTORY}: {error.strerror}") from None


def keep(record: Record) -> Record:
    """Marks a cluster as kept until `down`; returns its new record. Raises ClusterError."""
    kept = msgspec.structs.replace(record, kept=True)
    new = record.folder / f"{RECORD}.new"
    try:
        new.write_bytes(msgspec.json.encode(kept))
        os.replace(new, record.folder / RECORD)
    except OSError as error:
        raise ClusterError(f"{new}: {error.strerror}") from None
    return kept


def remove(record: Record) -> None:
    """Ends all processes in its nodes, and removes the nodes, its files and its record. Raises ClusterError."""
    there = set(iproute.namespaces())
    _remove(name for name in record.namespaces if name in there)
    shutil.rmtree(record.folder, ignore_errors=True)


def sweep() -> list[str]:
    """Removes the remains of unwanted clusters; returns the names of these clusters. Raises ClusterError."""
    swept = set()
    for record in _records():
        if not wanted(record):
            remove(record)
            swept.add(record.name)
    left, there = (
        [],
        iproute.namespaces(),
    )  # listed before records are read, since a record is written before its namespaces are made
    of_known = {name for record in known() for name in record.namespaces}
    for name in there:
        match = NAMESPACE.fullmatch(name)
        if match and name not in of_known and not _lives(int(match[3]), int(match[4])):
            left.append(name)
            swept.add(match[2])
    _remove(left)
    if DIRECTORY.is_dir():
        for folder in DIRECTORY.iterdir():
            match = NAMESPACE.fullmatch(f"{folder.name[1:]}-switch") if folder.name.startswith(".") else None
            broken = not folder.name.startswith(".") and _read(folder) is None
            if broken or (match and not _lives(int(match[3]), int(match[4]))):
                shutil.rmtree(folder, ignore_errors=True)
    return sorted(swept)


def end(pids: Iterable[int], again: Iterator[list[int]]) -> None:
    """Sends SIGTERM to processes, and after GRACE_S SIGKILL; `again` yields the processes that are still there.

    Raises ClusterError if some have not ended after END_S."""
    _signal(pids, signal.SIGTERM)
    killing, over = time.monotonic() + GRACE_S, time.monotonic() + END_S
    for there in again:
        if not there:
            return
        now = time.monotonic()
        if now > over:
            raise ClusterError(f"processes {', '.join(map(str, there[:5]))} do not end, not even by SIGKILL")
        if now > killing:
            _signal(there, signal.SIGKILL)
        time.sleep(0.02)


def _remove(names: Iterable[str]) -> None:
    names = list(names)
    if not names:
        return

    def there() -> list[int]:
        return [pid for name in names for pid in iproute.processes(name) if pid != os.getpid()]

    end(there(), iter(there, None))
    for name in names:
        with contextlib.suppress(ClusterError):  # another process may have removed it
            iproute.ip("netns", "del", name)
    if left := set(names) & set(iproute.namespaces()):
        iproute.ip("netns", "del", min(left))  # raises with the reason


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _lives(pid: int, start: int) -> bool:
    now = identity(pid).start
    return now is not None and (now == start or start == 0)


def _records() -> list[Record]:
    """All records that can be read."""
    if not DIRECTORY.is_dir():
        return []
    _require_directory()
    folders = sorted(folder for folder in DIRECTORY.iterdir() if not folder.name.startswith("."))
    return [record for folder in folders if (record := _read(folder)) is not None]


def _read(folder: Path) -> Record | None:
    try:
        record = read_json(folder / RECORD, Record, RECORD_MOST)
    except (OSError, Refused):
        return None
    return record if record.name == folder.name else None


def _require_directory() -> None:
    """Makes DIRECTORY. Raises ClusterError unless it is a directory of this user alone."""
    try:
        DIRECTORY.mkdir(mode=0o700, exist_ok=True)
        status = os.lstat(DIRECTORY)
    except OSError as error:
        raise ClusterError(f"{DIRECTORY}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise ClusterError(f"{DIRECTORY} is not a directory of this user alone (mode 0700): move it away")
