"""Sparse matrices that `scipy.sparse.save_npz` wrote, in pieces and without SciPy: formats csr, csc and coo.

A part of a compressed array cannot be found without reading what comes before it, so every rank reads the file from its
beginning and keeps its own part: reading in parallel divides the memory and not the time.
"""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from miniapps.solver.matrixfile import FileError, MatrixFile, first_wrong

FORMATS = ("csr", "csc", "coo")
PIECE = 1 << 18  # entries that are read at once


def header(path: Path) -> MatrixFile:
    """The header of the matrix. Raises FileError unless it is a sparse one of real numbers, with what is wrong."""
    with _opened(path) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
        if "format" not in members or "data" not in members:
            raise FileError(
                f"{path}: no sparse matrix, but arrays {', '.join(members)}; write one with scipy.sparse.save_npz"
            )
        kind = _whole(path, archive, "format")[0]
        kind = kind.decode("ascii") if isinstance(kind, bytes) else kind
        if kind not in FORMATS:
            raise FileError(
                f"{path}: format {kind!r}; what can be read: {', '.join(FORMATS)} (save matrix.tocsr())"
            )
        rows, columns = (int(n) for n in _whole(path, archive, "shape"))
        data = _Member(path, archive, "data")
        if data.dtype.kind not in "fiub" or data.dtype.itemsize > 8:
            raise FileError(
                f"{path}: entries of type {data.dtype}; real ones are needed, of at most 64 bits: save "
                "matrix.astype('float64'), or the real part"
            )
        field = "real" if data.dtype.kind == "f" else "integer"
        return MatrixFile(kind, field, "general", rows, columns, data.size, path)


def pieces(file: MatrixFile, part: int, parts: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Part `part` of `parts` of the entries: (rows, columns, values) int64, int64, float64, counted from 0.

    Raises FileError for an index out of range, a value that is not finite and a file that is damaged.
    """
    first, last = (file.entries * p // parts for p in (part, part + 1))
    with _opened(file.path) as archive:
        data = _Member(file.path, archive, "data", first)
        rows, columns = _places(file, archive, first)
        for at in range(first, last, PIECE):
            count = min(PIECE, last - at)
            found = rows.read(count), columns.read(count), data.read(count).astype(np.float64)
            first_wrong(file.path, *found, (file.rows, file.columns), lambda i, at=at: f"entry {at + i + 1}")
            yield found[0].astype(np.int64), found[1].astype(np.int64), found[2]


def _places(file: MatrixFile, archive, first: int):
    """Readers of the rows and of the columns of the entries from `first` on."""
    if file.kind == "coo" and "coords.npy" in archive.namelist():
        names = ("coords", first), ("coords", file.entries + first)
    elif file.kind == "coo":
        names = ("row", first), ("col", first)
    else:
        major, minor = _Majors(file, archive, first), _Member(file.path, archive, "indices", first)
        return (major, minor) if file.kind == "csr" else (minor, major)
    return tuple(_Member(file.path, archive, name, at) for name, at in names)


class _Member:
    """An array of the archive, read on and on from element `first`."""

    def __init__(self, path: Path, archive, name: str, first: int = 0):
        self._path, self._name = path, name
        try:
            self._stream = archive.open(f"{name}.npy")
        except KeyError:
            raise FileError(
                f"{path}: no array {name!r} in the file, though its format asks for it; save it again"
            ) from None
        version = np.lib.format.read_magic(self._stream)
        read = (
            np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        )
        shape, fortran, self.dtype = read(self._stream)
        if self.dtype.hasobject or (fortran and len(shape) > 1):
            raise FileError(
                f"{path}: array {name!r} is stored in a way that SciPy does not use; save it again"
            )
        self.size = int(np.prod(shape))
        self._stream.seek(first * self.dtype.itemsize, 1)

    def read(self, count: int) -> np.ndarray:
        """The next `count` elements; raises FileError where there are fewer."""
        block = self._stream.read(count * self.dtype.itemsize)
        if len(block) < count * self.dtype.itemsize:
            raise FileError(f"{self._path}: array {self._name!r} is cut short; get the file again")
        return np.frombuffer(block, self.dtype)


class _Majors:
    """The rows (columns, for csc) of the entries from `first` on, made of the bounds in `indptr`."""

    def __init__(self, file: MatrixFile, archive, first: int):
        self._path, self._at = file.path, first
        self._bounds = _Member(file.path, archive, "indptr")
        self._left = self._bounds.size - 1
        self._row = 0  # the one that ends at the first of `ends`
        self._ends = np.empty(0, np.int64)
        self._end = int(self._bounds.read(1)[0])
        if self._end != 0:
            raise FileError(
                f"{self._path}: 'indptr' begins with {self._end} instead of 0; save the matrix again"
            )

    def read(self, count: int) -> np.ndarray:
        """The rows of the next `count` entries."""
        found = []
        while count:
            if self._end <= self._at:
                self._next()
                continue
            stop = min(self._at + count, self._end)
            found.append(self._row + np.searchsorted(self._ends, np.arange(self._at, stop), side="right"))
            count -= stop - self._at
            self._at = stop
        return np.concatenate(found)

    def _next(self) -> None:
        """Read the ends of the next rows."""
        if not self._left:
            raise FileError(
                f"{self._path}: 'indptr' ends with {self._end}, but there are more entries; save the matrix again"
            )
        ends = self._bounds.read(min(PIECE, self._left)).astype(np.int64)
        if (np.diff(ends, prepend=self._end) < 0).any():
            raise FileError(
                f"{self._path}: 'indptr' falls; it must give the bounds of rows: save the matrix again"
            )
        self._row += len(self._ends)
        self._left -= len(ends)
        self._ends, self._end = ends, int(ends[-1])


@contextmanager
def _opened(path: Path):
    """The archive; what is wrong with it as FileError."""
    try:
        with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
            yield archive
    except FileError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError) as error:
        raise FileError(f"{path}: the file is cut short or damaged ({error}); get it again") from error


def _whole(path: Path, archive, name: str) -> np.ndarray:
    """A small array of the archive, all of it."""
    member = _Member(path, archive, name)
    return member.read(member.size)
