"""Open files of unknown origin: only regular files, never through a link, never more bytes than fit.

Opening a fifo waits for ever, and reading a device never ends. A link in a received directory leads to a file outside
it, and a sparse file of a few blocks claims terabytes.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

MOST = 8 * 2**30  # bytes of one file, unless a caller says otherwise
PIECE = 2**24  # bytes read at once
# A file read as a whole may have at most HOLES bytes, plus CLAIMED times its bytes on disk. The unused end of a trace's
# tail is a hole, and some file systems store small files without blocks.
HOLES, CLAIMED = 2**26, 4
KINDS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a fifo"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class Refused(Exception):
    """A file that failed a check; the message names the file, the error and the remedy."""


@contextlib.contextmanager
def open_regular(path: str | os.PathLike, most: int = MOST, links: bool = False) -> Iterator[BinaryIO]:
    """Open the regular file `path` of at most `most` bytes for reading.

    `links`: follow a link in the last part of the path; only for paths that the user typed, never for names found in a
    directory. Raises Refused unless it is a regular file of this size, OSError (FileNotFoundError, PermissionError) as
    `open` does.
    """
    shown = _shown(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except OSError:
        kind = kind_of(path)  # a link gives ELOOP, a socket ENXIO
        if kind and not (links and kind == "a symbolic link"):
            raise _not_regular(shown, kind) from None
        raise
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode):
        os.close(handle)  # `open` below would raise without the kind, and leave a directory open
        raise _not_regular(shown, _kind(status.st_mode))
    with open(handle, "rb") as file:
        if status.st_size > most:
            raise Refused(
                f"{shown}: {status.st_size:,} bytes, and at most {most:,} are read; it is damaged, or not written by "
                "this suite: leave it out"
            )
        yield file


def read_bytes(path: str | os.PathLike, most: int = MOST, links: bool = False) -> bytes:
    """Reads a regular file of at most `most` bytes. Raises as `open_regular`, and Refused if the file grows beyond."""
    with open_regular(path, most, links) as file:
        require_dense(file, path)
        content = bytearray()
        while len(content) <= most and (piece := file.read(PIECE)):
            content += piece
    if len(content) > most:
        raise Refused(f"{_shown(path)}: grew over {most:,} bytes while it was read; read it again later")
    return bytes(content)


def read_text(path: str | os.PathLike, most: int = MOST, links: bool = False) -> str:
    """Reads a regular file as UTF-8 text. Raises as `read_bytes`, and Refused if it is not UTF-8."""
    try:
        return read_bytes(path, most, links).decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refused(f"{_shown(path)}: is not UTF-8 text (byte {error.start}); copy it again") from None


def require_dense(file: BinaryIO, path: str | os.PathLike) -> None:
    """Raise Refused if an open file, to be read as a whole, consists almost only of holes."""
    status = os.fstat(file.fileno())
    if status.st_size > HOLES + CLAIMED * 512 * status.st_blocks:
        raise Refused(
            f"{_shown(path)}: {status.st_size:,} bytes, nearly all of them holes; leave it out, or, if it is your "
            "file, fill them: cp --sparse=never"
        )


def require_no_links(root: str | os.PathLike, name: str | os.PathLike) -> None:
    """Raise Refused if a folder of the relative path `name` below the directory `root` is a link."""
    path = Path(root)
    for part in Path(name).parts[:-1]:
        path /= part
        if kind_of(path) == "a symbolic link":
            raise _not_regular(_shown(path), "a symbolic link")


def kind_of(path: str | os.PathLike) -> str:
    """The kind of `path` in words, such as "a fifo"; empty for a regular or a missing file. Follows no link."""
    try:
        return _kind(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return ""


def _kind(mode: int) -> str:
    return next((words for test, words in KINDS if test(mode)), "")


def _not_regular(shown: str, kind: str) -> Refused:
    return Refused(f"{shown}: is {kind or 'no regular file'}, and only regular files are read; leave it out")


def _shown(path: str | os.PathLike) -> str:
    from miniapps.untrusted.text import printable

    return printable(os.fspath(Path(path)))
