"""The directory of a run: detect during the run that it was removed, moved, replaced or made read-only.

Others can remove a path or reuse its name, while an open directory stays the same. So this module compares the path
with the open directory by device and inode, and writes small files relative to the open directory.
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

# Errors for a path that no longer exists. Other errors, such as those of a slow server, prove nothing.
_NOWHERE = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP, errno.ESTALE)
ADVICE = "start the run again, and leave its directory alone until it has ended"

Identity = tuple[int, int]  # device and inode


class PlaceError(Exception):
    """The directory of a run has changed since the run began; the message says how."""


def directory(out: Path) -> Path:
    """Create the directory of the run. Raises UsageError if it is not empty or not writable."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        used = next(out.iterdir(), None)
    except OSError as error:
        raise UsageError(
            f"--out {out}: cannot be created: {error.strerror}; choose a directory that you may write to"
        ) from error
    if used:
        raise UsageError(
            f"--out {out}: not empty, it has {used.name}, and a run overwrites nothing; choose a new or an empty "
            "directory"
        )
    if not os.access(out, os.W_OK | os.X_OK):
        raise UsageError(f"--out {out}: you may not write to it; choose another directory")
    return out


class Place:
    """The directory of a run, held open by one rank. Raises PlaceError if it cannot be opened."""

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
        """A sentence that says how the directory has changed; empty while it is in its place and writable."""
        where = f"the directory of the run, {self.path},"
        # Checked first, so that a directory removed in between counts as removed.
        writable = os.access(self.path, os.W_OK | os.X_OK)
        if not leads_to(self.path, self._identity):
            return f"{where} {fate(self.path, self._identity)}; {ADVICE}"
        if writable:
            return ""
        mode = stat.filemode(os.fstat(self._handle).st_mode)
        return (
            f"{where} can no longer be written to (mode {mode}, or immutable): the files written so far are there; "
            + ADVICE
        )

    def require(self) -> Path:
        """The path of the directory, for writing. Raises PlaceError if it no longer leads to the directory."""
        if trouble := self.trouble():
            raise PlaceError(trouble)
        return self.path

    def claim(self) -> bool:
        """Whether this process is the first of its node to claim the directory; it keeps the claim until it ends.

        Writes nothing, so it also works with a full disk or a removed directory."""
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # no such locks on this file system
            return True
        return True

    def write(self, name: str, text: str) -> None:
        """Write the new file `name`, whole or not at all. Raises OSError; FileExistsError if the name is taken."""
        draft = f".{name}.{secrets.token_hex(4)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(draft, flags, 0o666, dir_fd=self._handle)
        try:
            with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
            try:  # a link, unlike a rename, never replaces a file
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
        """Close the directory."""
        os.close(self._handle)


def of(status: os.stat_result) -> Identity:
    """The device and inode, unique while the file or directory is open."""
    return status.st_dev, status.st_ino


def leads_to(path: str | os.PathLike, held: Identity) -> bool:
    """Whether `path` still leads to the open file or directory `held`; true if the file system does not answer."""
    try:
        return of(os.stat(path)) == held
    except OSError as error:
        return error.errno not in _NOWHERE


def fate(path: str | os.PathLike, held: Identity) -> str:
    """The end of a sentence that says why `path` no longer leads to the open file or directory `held`."""
    if now := whereabouts(held):
        return f"was moved to {now} during the run, and the files written so far are there"
    gone = "was removed during the run, with everything written so far"
    return f"{gone}; something else has its name now" if os.path.lexists(path) else gone


def whereabouts(held: Identity) -> Path | None:
    """The current path of a file or directory that this process has open; None if it was removed, or if the system
    does not tell (Linux does, by /proc)."""
    with contextlib.suppress(OSError):
        for handle in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if of(os.fstat(int(handle))) == held:
                    now = Path(os.readlink(f"/proc/self/fd/{handle}"))
                    removed = now.name.startswith(".nfs")  # NFS renames an open file that is removed
                    return now if not removed and leads_to(now, held) else None
    return None
