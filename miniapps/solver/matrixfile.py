"""What is known of the file of a matrix before its entries are read, and the error that tells what is wrong with it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from miniapps.config import UsageError


class FileError(UsageError):
    """A file that holds no matrix (or vector) that can be used; the message names it, the place, and what to do."""


@dataclass(frozen=True)
class MatrixFile:
    """The header of a matrix in a file.

    `kind`: "Matrix Market", or "csr", "csc", "coo" of SciPy's .npz; `field`: "real", "integer" or "pattern" (every
    entry is 1); `symmetry`: "general", "symmetric", "skew-symmetric" (then one triangle is stored); `rows` x `columns`;
    `entries` stored.
    """

    kind: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int
    path: Path
    begin: int = field(default=0, repr=False)  # byte where the entries of a text begin


def first_wrong(path: Path, rows, columns, values, shape, place: Callable[[int], str]) -> None:
    """Raise FileError for the first entry outside of `shape`, or whose value is not finite; `place(i)` is where it is.

    `rows`, `columns`: counted from 0, as in memory; messages count from 1, as files do.
    """
    outside = (rows < 0) | (rows >= shape[0]) | (columns < 0) | (columns >= shape[1])
    wrong = outside | ~np.isfinite(values)
    if not wrong.any():
        return
    i = int(np.argmax(wrong))
    at = f"{path}, {place(i)}: row {int(rows[i]) + 1}, column {int(columns[i]) + 1}"
    if outside[i]:
        raise FileError(
            f"{at} is outside of the {shape[0]} x {shape[1]} matrix that the file announces (counted from 1); correct "
            "the entry or the size"
        )
    raise FileError(
        f"{at} is {values[i]}; entries must be finite numbers of float64: correct or leave out this one"
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What the system says about `path` inside becomes a FileError."""
    try:
        yield
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file; give the path of a .mtx or .npz file") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}; give another file") from error
