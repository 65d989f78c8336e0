"""Makes new files and directories, which get their final name only when they are complete."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def part_of(path: Path) -> Path:
    """The name of `path` while it is incomplete."""
    return path.with_name(f"{path.name}.part")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A new file, named `path`.part while the caller writes it, and `path` once it is complete. A failure removes it.
    Raises OSError, and FileExistsError if either name exists."""
    part = part_of(path)
    with part.open("xb") as file:
        try:
            yield file
            file.flush()
            rename(part, path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise


@contextmanager
def new_directory(path: Path) -> Iterator[Path]:
    """Like `new_file`, for a directory."""
    with parts_of(path) as part:
        yield part
        rename(part, path)


@contextmanager
def parts_of(path: Path) -> Iterator[Path]:
    """The directory `path`.part for incomplete files; it is removed at the end."""
    part = part_of(path)
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def rename(part: Path, path: Path) -> None:
    """Renames `part` to `path`. Raises FileExistsError if `path` exists, and OSError."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    part.rename(path)
