"""Appends to a ledger. `miniapps.untrusted.ledger` defines its format and reads it."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

from miniapps.untrusted import Refused
from miniapps.untrusted.ledger import LINE_MOST, MOST, hash_of, line_of, lock, read_open
from miniapps.untrusted.prediction import Prediction, from_dict
from miniapps.untrusted.text import printable


def append(path: str | os.PathLike, prediction: Prediction, anchor: str = "") -> str:
    """Appends `prediction`, with an `anchor` if there is one, to the ledger in the file `path`, which it creates if
    needed; returns the new row's hash.

    It first checks the whole chain. A lock serialises appends of several processes. The row is on disk when this
    returns; if it cannot be written whole (disk full), the ledger stays as it was. Raises Refused if the ledger was
    changed or another process keeps its lock, OSError if it cannot be written.
    """
    shown = printable(os.fspath(path))
    content = prediction.as_dict()
    from_dict(content, "the prediction")  # raises for a row that could not be read back
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "r+b", buffering=0) as raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise Refused(f"{shown}: not a regular file; choose another path for the ledger")
        lock(raw, fcntl.LOCK_EX, shown)
        size = os.fstat(raw.fileno()).st_size
        if size > MOST - LINE_MOST:
            raise Refused(f"{shown}: {size:,} bytes, and a ledger may have {MOST:,}; begin another one")
        with open(os.dup(raw.fileno()), "rb") as reading:
            head = read_open(reading, shown).head
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        line = line_of(head, now, content, anchor)
        if len(line) > LINE_MOST:
            raise Refused(f"the prediction takes {len(line):,} bytes, and a row may have {LINE_MOST:,}")
        _write(raw, line, size)
    if not size:
        _sync_directory(Path(path).parent)
    return hash_of(head, now, content, anchor)


def _write(raw, line: bytes, size: int) -> None:
    """Appends `line` to the file of `size` bytes, or leaves the file as it was."""
    try:
        if (written := raw.write(line)) != len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written")
        os.fsync(raw.fileno())
    except BaseException:
        raw.truncate(size)
        raise


def _sync_directory(directory: Path) -> None:
    """Makes a new file's name durable."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
