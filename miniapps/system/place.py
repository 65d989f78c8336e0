"""The directory of a run while the run goes on: noticed when it is removed, moved, replaced or closed to writing.

A path is a name that others can take away or give to something else; what is open stays what it is. So what a path
leads to now is compared by device and inode with what was opened as it, and small files are written relative to the
open directory, wherever that is by then.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import stat
from pathlib import Path

from miniapps.errors import UsageError

# What a file system answers for a name that leads nowhere now. Other errors, as of a server that is late, say nothing.
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ESTALE)
ADVICE = "start the run again, and leave its directory alone until it has ended"

Identity = tuple[int, int]  # device and inode


class PlaceError(Exception):
    """The directory of a run is not what it was when the run began; the message says what became of it."""


def directory(out: Path) -> Path:
    """Create the directory of the run; raises UsageError where it is in use or cannot be written to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = next(out.iterdir(), None)
    except OSError as error:
        raise UsageError(
            f"--out {out}: cannot be created: {error.strerror}; choose a directory that you may write to"
        ) from error
    if used:
        raise UsageError(
            f"--out {out}: {used.name} is in it already, and nothing is written over; choose a new or an "
            "empty directory"
        )
    if not os.access(out, os.W_OK | os.X_OK):
        raise UsageError(f"--out {out}: you may not write to it; choose another directory")
    return out


class Place:
    """The directory of a run, held open by one rank. Raises PlaceError where it cannot be opened."""

    def __init__(self, path: str | os.PathLike):
        self.path = Path(path)
        try:
            self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise PlaceError(
                f"the directory of the run, {self.path}, cannot be opened: {error.strerror}; choose one on a file "
                "system that all nodes share (--out DIR)"
            ) from error
        self._identity = of(os.fstat(self._handle))

    def trouble(self) -> str:
        """What became of the directory, in a sentence; empty while it is where it was and can be written to."""
        where = f"the directory of the run, {self.path},"
        # Asked first, so that what is removed in between is told as removed.
        writable = os.access(self.path, os.W_OK | os.X_OK)
        if not leads_to(self.path, self._identity):
            return f"{where} {fate(self.path, self._identity)}; {ADVICE}"
        if writable:
            return ""
        mode = stat.filemode(os.fstat(self._handle).st_mode)
        return (
            f"{where} can no longer be written to (mode {mode}, or immutable): what was written so far is there; "
            + ADVICE
        )

    def require(self) -> Path:
        """The path of the directory, to write to. Raises PlaceError where that would not reach it."""
        if trouble := self.trouble():
            raise PlaceError(trouble)
        return self.path

    def claim(self) -> bool:
        """Whether this process is the first of its node to say so; it is until it ends. Writes nothing, so that a full
        disk or a removed directory does not matter."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # no such locks on this file system
            return True
        return True

    def write(self, name: str, text: str) -> None:
        """Write the new file `name`, whole or not at all. Raises OSError, FileExistsError where there is one."""
        draft = f".{name}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(draft, flags, 0o666, dir_fd=self._handle)
        try:
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            try:  # a link, unlike a rename, never replaces what is there
                os.link(draft, name, src_dir_fd=self._handle, dst_dir_fd=self._handle, follow_symlinks=False)
            except FileExistsError:
                raise
            except OSError:  # a file system without links
                if name in os.listdir(self._handle):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name) from None
                os.rename(draft, name, src_dir_fd=self._handle, dst_dir_fd=self._handle)
        finally:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=self._handle)

    def remove(self, name: str) -> None:
        """Remove a file that this process has written. Raises OSError."""
        os.unlink(name, dir_fd=self._handle)

    def close(self) -> None:
        """Let go of the directory."""
        os.close(self._handle)


def of(status: os.stat_result) -> Identity:
    """What tells a file or directory from all others while it is open."""
    return status.st_dev, status.st_ino


def leads_to(path: str | os.PathLike, held: Identity) -> bool:
    """Whether `path` still leads to what was opened as it; also where the file system does not answer."""
    try:
        return of(os.stat(path)) == held
    except OSError as error:
        return error.errno not in _NOWHERE


def fate(path: str | os.PathLike, held: Identity) -> str:
    """What became of what was opened as `path`, which does not lead to it any more: the end of a sentence."""
    if now := whereabouts(held):
        return f"was moved to {now} while the run went on, and what was written so far is there"
    gone = "was removed while the run went on, and what was written so far with it"
    return f"{gone}; another has its name now" if os.path.lexists(path) else gone


def whereabouts(held: Identity) -> Path | None:
    """The path by now of what this process has open; None where it was removed, or where the system does not tell (it
    does under /proc of Linux)."""
    with contextlib.suppress(OSError):
        for handle in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if of(os.fstat(int(handle))) == held:
                    now = Path(os.readlink(f"/proc/self/fd/{handle}"))
                    silly = now.name.startswith(
                        ".nfs"
                    )  # what NFS makes of a file that is removed while it is open
                    return now if not silly and leads_to(now, held) else None
    return None
