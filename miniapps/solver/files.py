"""Reads matrices and right-hand sides from files: Matrix Market text, SciPy's .npz, NumPy's .npy.

`read` gives every rank its own rows, with the same bits for any number of reading ranks. `header` and errors concern
the file as a whole: an error on one rank is raised on all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from kernels import npy
from miniapps.layout.rows import Rows
from miniapps.solver import matrix_market, scipy_npz
from miniapps.solver.matrixfile import (
    FileError,
    MatrixFile,
    as_numbers,
    first_wrong,
    opened,
    readable,
    require_rows,
)
from miniapps.solver.redistribute import (
    Entries,
    Triplets,
    assembled,
    expanded,
    redistribute,
    symmetry,
    together,
)

__all__ = ["FileError", "MatrixFile", "check_vector", "header", "read", "symmetry", "vector"]

INDEX_MAX = np.iinfo(np.int32).max  # of a rank's own rows
HOW = ("parallel", "root")
VECTOR_PIECE = 1 << 18  # elements of a .npy file sent at once


def header(path) -> MatrixFile:
    """Reads the header of a file: kind, field, symmetry and sizes. Not collective.

    Raises FileError for a missing or unreadable file, for anything but a square sparse matrix of real numbers, and for
    a file that announces more than it can hold.
    """
    path = Path(path)
    magic = _magic(path)
    if magic.startswith(npy.MAGIC):
        raise FileError(
            f"{path}: a dense array of NumPy; a sparse matrix is needed: scipy.sparse.save_npz, or scipy.io.mmwrite"
        )
    return require_rows((scipy_npz if magic.startswith(b"PK") else matrix_market).header(path))


def read(path, comm, rows: Rows, how: str = "parallel") -> Entries:
    """Returns (indptr int64 (m + 1,), global columns int64, data float64) of the own rows in local order, sorted by
    column.

    Fills in the missing triangle of a symmetric file; adds entries at the same place of one triangle in the order of
    the file. `how`: with "parallel" every rank reads its part of the file, with "root" rank 0 reads all of it; both
    read in pieces and give the same bits. Collective.

    Raises FileError on all ranks, like `header`, and for a wrong line or entry (named), NaN and infinities, integers
    beyond float64, entries in both triangles of a symmetric file, more or fewer entries than announced, rows without an
    entry, and more rows than a rank can number.
    """
    if how not in HOW:
        raise ValueError(f"how = {how!r}: choose among {', '.join(HOW)}")
    file, _ = together(comm, lambda: header(path) if comm.rank == 0 else None)
    file = comm.bcast(file)
    if rows.n != file.rows:
        raise ValueError(
            f"{file.path} has {file.rows} rows, but the blocks hold {rows.n}; cut the rows of `header`"
        )
    largest = np.bincount(rows.owner, np.diff(rows.starts)).max()
    if largest > INDEX_MAX:
        raise FileError(
            f"{file.path}: {int(largest)} of {file.rows} rows on one rank, which can number {INDEX_MAX}; start at "
            f"least {-(-file.rows // INDEX_MAX)} ranks"
        )
    part, parts = (comm.rank, comm.size) if how == "parallel" else (0, 1)
    counts: list[int] = []
    pieces = _counted(_pieces(file, part, parts), counts) if how == "parallel" or comm.rank == 0 else iter(())
    triplets = redistribute(comm, rows, expanded(file.symmetry, pieces))
    _require_all(file, comm.allreduce(sum(counts)))
    entries, twice = assembled(rows, triplets)
    _require_one_triangle(file, comm, twice)
    _require_no_empty_row(file, comm, rows, entries[0])
    return entries


def vector(path, comm, rows: Rows) -> np.ndarray:
    """float64 (m,): the own elements of a vector over `rows`, from a Matrix Market array or a .npy file.

    Rank 0 reads the file in pieces. Collective. Raises FileError on all ranks unless it holds `rows.n` finite numbers.
    """
    pieces = _vector_pieces(Path(path), rows.n) if comm.rank == 0 else iter(())
    row, _, value = redistribute(comm, rows, pieces)
    x = np.empty(rows.m)
    x[rows.local_of(row)] = value
    return x


def check_vector(path, n: int | None = None) -> None:
    """Raise FileError unless the header of `path` is that of a vector, of `n` elements if given. Not collective."""
    path = Path(path)
    if _magic(path).startswith(npy.MAGIC):
        with _array(path) as array:
            length = array.size
    else:
        length = matrix_market.vector_header(path).expected
    if n is not None:
        _require_length(path, length, n)


def _magic(path: Path) -> bytes:
    with opened(path) as file:
        return file.read(6)


def _pieces(file: MatrixFile, part: int, parts: int) -> Iterator[Triplets]:
    with readable(file.path):
        if file.kind == matrix_market.KIND:
            yield from matrix_market.pieces(matrix_market.entries_of(file), part, parts)
        else:
            yield from scipy_npz.pieces(file, part, parts)


def _counted(pieces: Iterator[Triplets], counts: list[int]) -> Iterator[Triplets]:
    for piece in pieces:
        counts.append(len(piece[0]))
        yield piece


def _require_all(file: MatrixFile, count: int) -> None:
    if count < file.entries:
        raise FileError(
            f"{file.path}: the file is cut short: {count} of {file.entries} entries; get it again, or correct the size"
        )
    if count > file.entries:
        raise FileError(
            f"{file.path}: {count} entries, but the size announces {file.entries}; correct one of them"
        )


def _require_one_triangle(file: MatrixFile, comm, twice: tuple[int, int] | None) -> None:
    """Raise FileError on all ranks if any found the place `twice` in both triangles of a symmetric file."""
    place = min((each for each in comm.allgather(twice) if each is not None), default=None)
    if place is None:
        return
    i, j = max(place), min(place)
    message = None
    if comm.rank == 0:
        lower, upper = matrix_market.lines_of(matrix_market.entries_of(file), (i, j), (j, i))
        message = (
            f"{file.path}, {lower} and {upper}: a {file.symmetry} file holds one triangle, and both row {i + 1}, "
            f"column {j + 1} and row {j + 1}, column {i + 1} are here; leave out one of them, or write the file as "
            "general"
        )
    raise FileError(comm.bcast(message))


def _require_no_empty_row(file: MatrixFile, comm, rows: Rows, indptr: np.ndarray) -> None:
    empty = rows.global_rows()[np.diff(indptr) == 0]
    empty_rows = comm.allgather((int(empty[0]) if len(empty) else rows.n, len(empty)))
    count = sum(count for _, count in empty_rows)
    if count:
        first = min(first for first, _ in empty_rows) + 1
        raise FileError(
            f"{file.path}: row {first} has no entry (counted from 1; {count} of {rows.n} rows have none), so the "
            "matrix is singular; leave these unknowns out, or give them a diagonal entry"
        )


def _vector_pieces(path: Path, n: int) -> Iterator[Triplets]:
    if _magic(path).startswith(npy.MAGIC):
        yield from _array_pieces(path, n)
    else:
        with readable(path):
            text = matrix_market.vector_header(path)
            _require_length(path, text.expected, n)
            yield from matrix_market.pieces(text, 0, 1)


def _array_pieces(path: Path, n: int) -> Iterator[Triplets]:
    with _array(path) as array:
        _require_length(path, array.size, n)
        for at in range(0, n, VECTOR_PIECE):
            value = as_numbers(path, array.reshape(-1)[at : at + VECTOR_PIECE], partial(_element, at))
            row = np.arange(at, at + len(value))
            column = np.zeros(len(value), np.int64)
            first_wrong(path, row, column, value, (n, 1), partial(_element, at))
            yield row, column, value


def _element(at: int, i: int) -> str:
    return f"element {at + i + 1}"


@contextmanager
def _array(path: Path) -> Iterator[np.ndarray]:
    """The vector in a .npy file, mapped into memory."""
    with opened(path) as file:
        try:
            array = npy.mapped(file)
        except ValueError as error:
            raise FileError(f"{path}: the file is cut short or damaged: {error}; get it again") from error
        if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
            raise FileError(
                f"{path}: elements of type {array.dtype}; real ones are needed, of at most 64 bits"
            )
        if array.shape not in ((array.size,), (array.size, 1)):
            raise FileError(
                f"{path}: an array of shape {array.shape}; a vector has one column: write each by itself"
            )
        yield array


def _require_length(path: Path, length: int, n: int) -> None:
    if length != n:
        raise FileError(f"{path}: {length} elements for a matrix of {n} rows; give a vector of that length")
