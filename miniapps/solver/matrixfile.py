"""The header of a matrix file, read before its entries, and the error for an invalid file."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from miniapps.errors import UsageError
from miniapps.untrusted.regular import Refused, open_regular

MOST = 2**42  # bytes of a file; no collection of matrices has larger ones
HELD = 2.0**53  # float64 holds all integers up to this one
SLACK = 2**16  # errors of an announced size up to this one are left to reading, which names the wrong line


class FileError(UsageError):
    """A file without a usable matrix or vector; the message has file, place and remedy."""


@dataclass(frozen=True)
class MatrixFile:
    """The header of a matrix in a file.

    `kind`: "Matrix Market", or "csr", "csc", "coo" of SciPy's .npz; `field`: "real" or "integer"; `symmetry`:
    "general", "symmetric", "skew-symmetric" (then one triangle is stored); `rows` x `columns`; `entries` stored.
    """

    kind: str
    field: str
    symmetry: str
    rows: int
    columns: int
    entries: int
    path: Path
    begin: int = dataclasses.field(default=0, repr=False)  # byte where the entries of a text begin


def not_held(path: Path, place: str, number: int) -> FileError:
    """The error for an integer that float64 would change."""
    return FileError(
        f"{path}, {place}: the integer {number} would become {int(float(number))}, since float64 holds only some "
        "integers beyond 2^53; divide the system by a number, or write it with real numbers"
    )


def as_numbers(path: Path, stored: np.ndarray, place: Callable[[int], str]) -> np.ndarray:
    """Converts numbers of a file to float64. Raises FileError for an integer that float64 would change."""
    values = stored.astype(np.float64)
    if stored.dtype.kind in "iu":
        for i in np.flatnonzero(np.abs(values) >= HELD).tolist():
            if int(stored[i]) != int(values[i]):
                raise not_held(path, place(i), int(stored[i]))
    return values


def first_wrong(path: Path, rows, columns, values, shape, place: Callable[[int], str]) -> None:
    """Raise FileError for the first entry outside `shape`, or with a value that is not finite; `place(i)`: its place.

    `rows`, `columns`: counted from 0, as in memory; messages count from 1, as files do.
    """
    outside = (rows < 0) | (rows >= shape[0]) | (columns < 0) | (columns >= shape[1])
    wrong = outside | ~np.isfinite(values)
    if not wrong.any():
        return
    i = int(np.argmax(wrong))
    # Numbers of text are float64: one of 400 digits is infinite.
    at = f"{path}, {place(i)}: row {rows[i] + 1:.17g}, column {columns[i] + 1:.17g}"
    if outside[i]:
        raise FileError(
            f"{at} is outside the {shape[0]} x {shape[1]} matrix that the file announces (counted from 1); correct the "
            "entry or the size"
        )
    raise FileError(
        f"{at} is {values[i]}; entries must be finite numbers of float64: correct or leave out this one"
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns errors of the system about `path` into FileError."""
    try:
        yield
    except Refused as error:
        raise FileError(str(error)) from error
    except FileNotFoundError as error:
        raise FileError(f"{path}: no such file; give the path of a .mtx or .npz file") from error
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}; give another file") from error


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens the regular file `path`, or a link to one, for reading. Raises FileError for other files: reading a fifo or
    a device may never end."""
    with readable(path), open_regular(path, MOST, links=True) as file:
        yield file


def require_rows(file: MatrixFile) -> MatrixFile:
    """Returns `file` if it can be a system to solve. Raises FileError for one that is not square, and for more rows
    than its entries can fill, so that the size of the file bounds the memory for rows."""
    if file.rows != file.columns or file.rows < 1:
        raise FileError(
            f"{file.path}: {file.rows} x {file.columns}; a system to solve has as many rows as columns"
        )
    filled = file.entries * (1 if file.symmetry == "general" else 2)
    if filled + SLACK < file.rows:
        raise FileError(
            f"{file.path}: {file.rows} rows, but {file.entries} entries: at least {file.rows - filled} rows have no "
            "entry, so the matrix is singular; correct the size, leave them out, or give them a diagonal entry"
        )
    return file
