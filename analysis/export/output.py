"""Files and directories that are new, and whole or not there at all."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def part_of(path: Path) -> Path:
    """What is called `path` when it is whole."""
    return path.with_name(f"{path.name}.part")


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """What becomes the new file `path` when it is whole; until then it is `path`.part, which goes away when writing it
    fails. Raises OSError, FileExistsError for both names."""
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
    """As `new_file`, a directory."""
    with parts_of(path) as part:
        yield part
        rename(part, path)


@contextmanager
def parts_of(path: Path) -> Iterator[Path]:
    """A directory beside `path`, `path`.part, for what is not whole yet; in the end it goes away."""
    part = part_of(path)
    part.mkdir()
    try:
        yield part
    finally:
        shutil.rmtree(part, ignore_errors=True)


def rename(part: Path, path: Path) -> None:
    """Give `part` the name `path`, which nothing has. Raises OSError."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    part.rename(path)
