"""Files that are new, and whole or not there at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """The new file `path`, removed again when writing it fails. Raises OSError, FileExistsError too."""
    with path.open("xb") as file:
        try:
            yield file
            file.flush()
        except BaseException:
            path.unlink(missing_ok=True)
            raise
