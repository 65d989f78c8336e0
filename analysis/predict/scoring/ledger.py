"""Appending to a ledger; what it holds, and how it is read: `miniapps.untrusted.ledger`."""

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


def append(path: str | os.PathLike, prediction: Prediction) -> str:
    """Append `prediction` to the ledger in the file `path`, made where there is none; returns the hash of the new row.

    The whole chain is checked first. Appends by several processes follow each other. The row is on disk when this
    returns; a row that cannot be written whole (disk full) leaves the ledger as it was. Raises Refused where the ledger
    is not as it was written or another process keeps its lock, OSError where it cannot be written.
    """
    shown = printable(os.fspath(path))
    content = prediction.as_dict()
    from_dict(content, "the prediction")  # what cannot be read is not written
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(path, flags, 0o644), "r+b", buffering=0) as raw:
        if not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
            raise Refused(f"{shown}: is no regular file; choose another for the ledger")
        lock(raw, fcntl.LOCK_EX, shown)
        size = os.fstat(raw.fileno()).st_size
        if size > MOST - LINE_MOST:
            raise Refused(f"{shown}: {size:,} bytes, and a ledger has at most {MOST:,}; begin another one")
        with open(os.dup(raw.fileno()), "rb") as reading:
            head = read_open(reading, shown).head
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        line = line_of(head, now, content)
        if len(line) > LINE_MOST:
            raise Refused(f"the prediction takes {len(line):,} bytes, and a row has at most {LINE_MOST:,}")
        _write(raw, line, size)
    if not size:
        _sync_directory(Path(path).parent)
    return hash_of(head, now, content)


def _write(raw, line: bytes, size: int) -> None:
    """Append `line` to the file of `size` bytes, or leave it as it was."""
    try:
        if (written := raw.write(line)) != len(line):
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes could be written")
        os.fsync(raw.fileno())
    except BaseException:
        raw.truncate(size)
        raise


def _sync_directory(directory: Path) -> None:
    """Make a new file's name last."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
