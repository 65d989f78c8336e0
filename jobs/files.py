"""Reads, writes and renames files in the directory of a campaign, never through a link there."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import BinaryIO

import msgspec

from miniapps.untrusted.regular import Refused, kind_of
from miniapps.untrusted.text import printable


def is_folder(path: Path) -> bool:
    """True if `path` is a directory; False if it does not exist. Raises Refused for anything else, such as a link."""
    kind = kind_of(path)
    if kind == "a directory":
        return True
    if not os.path.lexists(path):
        return False
    raise Refused(
        f"{printable(str(path))}: is {kind or 'a file'}, where only a directory may be: nothing is read, written or "
        "renamed there; move it away"
    )


def append(path: Path, entry: msgspec.Struct) -> None:
    """Adds `entry` to the file `path` by `add`. Raises Refused for anything but a regular file, OSError."""
    with to_append(path) as file:
        add(file, entry)


def to_append(path: Path) -> BinaryIO:
    """Opens the file `path` to add lines; makes it if it does not exist. Raises Refused for anything but a regular
    file, OSError."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags, 0o666)
    except OSError:
        if kind := kind_of(path):
            raise _not_regular(path, kind) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(path, kind_of(path))
    return open(handle, "ab")


def add(file: BinaryIO, entry: msgspec.Struct) -> None:
    """Adds `entry` as a line of JSON, and syncs it to disk. A truncated last line before it stays a separate line.

    Raises OSError."""
    size = os.fstat(file.fileno()).st_size
    cut_off = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
    text = json.dumps(msgspec.to_builtins(entry))  # ASCII: no character can be cut in two
    file.write(("\n" * cut_off + text + "\n").encode())
    file.flush()
    os.fsync(file.fileno())


def rename_new(source: Path, target: Path) -> Path:
    """Renames `source` to `target`, with as many `+` appended as needed for a new name; returns the new path.

    Raises OSError."""
    while os.path.lexists(target):
        target = target.with_name(target.name + "+")
    os.rename(source, target)
    return target


def _not_regular(path: Path, kind: str) -> Refused:
    return Refused(
        f"{printable(str(path))}: is {kind or 'no regular file'}, and lines are added to regular files only; "
        "move it away"
    )
