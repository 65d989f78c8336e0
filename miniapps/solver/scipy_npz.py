"""Reads sparse matrices of `scipy.sparse.save_npz` in pieces and without SciPy: formats csr, csc and coo.

A part of a compressed array is found only by reading from the beginning. So every rank reads the whole file and keeps
its own part: parallel reading divides the memory, not the time. Compressed zeros take a thousandth of their size, so
the reader compares announced sizes with the size of the archive before it unpacks.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np

from kernels import npy
from miniapps.solver.matrixfile import FileError, MatrixFile, as_numbers, first_wrong, opened
from miniapps.untrusted import contents

FORMATS = ("csr", "csc", "coo")
PIECE = 1 << 18  # entries read at once
AT_ONCE = 1 << 22  # bytes read at once, at most; zipfile itself reads a directory of any size
MEMBERS = 100  # arrays in a file, at most
SMALL = 1 << 12  # bytes of the arrays `format` and `shape`
TIGHTEST = 1032  # bytes unpacked from one byte of deflate, at most


def header(path: Path) -> MatrixFile:
    """Reads the header of the matrix. Raises FileError unless it is sparse with real numbers, and says what is
    wrong."""
    with _opened(path) as archive:
        members = [name.removesuffix(".npy") for name in archive.namelist()]
        if len(members) > MEMBERS:
            raise FileError(f"{path}: {len(members)} arrays, and a matrix has at most six; save it again")
        if "format" not in members or "data" not in members:
            raise FileError(
                f"{path}: not a sparse matrix, but arrays {_shown(members)}; write one with scipy.sparse.save_npz"
            )
        kind = _format(path, archive)
        rows, columns = _shape(path, archive)
        data = _Member(path, archive, "data")
        if data.dtype.kind not in "fiub" or data.dtype.itemsize > 8:
            raise FileError(
                f"{path}: entries of type {data.dtype}; real ones are needed, of at most 64 bits: save "
                "matrix.astype('float64'), or the real part"
            )
        major = rows if kind == "csr" else columns
        held = 0
        for name, shape in {"data": (data.size,), **_arrays(kind, members, data.size, major)}.items():
            member = data if name == "data" else _Member(path, archive, name)
            if member.shape != shape or (name != "data" and member.dtype.kind not in "iu"):
                raise FileError(
                    f"{path}: array {name!r} is of type {member.dtype} and shape {member.shape}; a {kind} matrix of "
                    f"{rows} x {columns} with {data.size} entries has {'integers' if name != 'data' else 'them'} in "
                    f"the shape {shape}: save it again"
                )
            held += member.size * member.dtype.itemsize
        _require_worth(path, held)
        field = "real" if data.dtype.kind == "f" else "integer"
        return MatrixFile(kind, field, "general", rows, columns, data.size, path)


def pieces(file: MatrixFile, part: int, parts: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yields part `part` of `parts` of the entries: (rows, columns, values) int64, int64, float64, counted from 0.

    Raises FileError for an index out of range, a value that is not finite and a damaged file.
    """
    first, last = (file.entries * p // parts for p in (part, part + 1))
    with _opened(file.path) as archive:
        data = _Member(file.path, archive, "data", first)
        rows, columns = _places(file, archive, first)
        for at in range(first, last, PIECE):
            count = min(PIECE, last - at)
            place = partial(_entry, at)
            values = as_numbers(file.path, data.read(count), place)
            piece = rows.read(count), columns.read(count), values
            first_wrong(file.path, *piece, (file.rows, file.columns), place)
            yield piece[0].astype(np.int64), piece[1].astype(np.int64), piece[2]
        if part == parts - 1:
            for each in (rows, columns, data):
                each.end()


def _require_worth(path: Path, held: int) -> None:
    """Raise FileError for arrays with far more bytes than a real matrix packs into a file of this size."""
    there = path.stat().st_size
    most = contents.FREE + contents.FACTOR * there
    if held > most:
        raise FileError(
            f"{path}: arrays of {held:,} bytes packed into {there:,}, and at most {most:,} are unpacked from a file of "
            "this size; save it with scipy.sparse.save_npz(..., compressed=False)"
        )


def _entry(at: int, i: int) -> str:
    return f"entry {at + i + 1}"


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


def _arrays(kind: str, members: list[str], entries: int, major: int) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays with the places of entries."""
    if kind != "coo":
        return {"indices": (entries,), "indptr": (major + 1,)}
    return {"coords": (2, entries)} if "coords" in members else {"row": (entries,), "col": (entries,)}


def _shown(names: list[str]) -> str:
    """The first few of `names`, each shortened."""
    return ", ".join([name[:40] for name in names[:8]] + ["..."] * (len(names) > 8))


def _format(path: Path, archive) -> str:
    stored = _whole(path, archive, "format")
    kind = stored.reshape(-1)[0] if stored.size == 1 else None
    kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
    if kind not in FORMATS:
        raise FileError(
            f"{path}: format {kind[:20]!r} cannot be read; allowed: {', '.join(FORMATS)} (save matrix.tocsr())"
        )
    return kind


def _shape(path: Path, archive) -> tuple[int, int]:
    stored = _whole(path, archive, "shape")
    if stored.shape != (2,) or stored.dtype.kind not in "iu":
        raise FileError(
            f"{path}: array 'shape' is of type {stored.dtype} and shape {stored.shape}; two integers are needed: save "
            "the matrix again"
        )
    return int(stored[0]), int(stored[1])


class _Member:
    """An array of the archive, read sequentially from element `first`."""

    def __init__(self, path: Path, archive, name: str, first: int = 0):
        self._path, self._name = path, name
        try:
            info = archive.getinfo(f"{name}.npy")
        except KeyError:
            raise FileError(
                f"{path}: no array {name!r} in the file, although its format needs it; save it again"
            ) from None
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) or info.flag_bits & 1:
            raise FileError(
                f"{path}: array {name!r} is stored in a way that SciPy does not use; save it again"
            )
        self._stream = archive.open(info)
        try:
            head = npy.header(self._stream)
        except ValueError as error:
            raise FileError(f"{path}: array {name!r}: {error}; save it again") from error
        if head.fortran and len(head.shape) > 1:
            raise FileError(
                f"{path}: array {name!r} is stored in a way that SciPy does not use; save it again"
            )
        self.shape, self.dtype, self.size = head.shape, head.dtype, head.size
        there = info.file_size - self._stream.tell()
        if head.nbytes != there or info.file_size > TIGHTEST * info.compress_size + AT_ONCE:
            raise FileError(
                f"{path}: array {name!r} announces {head.nbytes} bytes, but the file has {there} of it, in "
                f"{info.compress_size}; get the file again"
            )
        self._stream.seek(first * self.dtype.itemsize, 1)
        self._left = self.size - first

    def read(self, count: int) -> np.ndarray:
        """The next `count` elements. Raises FileError if there are fewer."""
        block = self._stream.read(count * self.dtype.itemsize)
        if len(block) < count * self.dtype.itemsize:
            raise FileError(f"{self._path}: array {self._name!r} is cut short; get the file again")
        self._left -= count
        return np.frombuffer(block, self.dtype)

    def end(self) -> None:
        """Read beyond the last element, so that zipfile checks the checksum of the array."""
        if not self._left:
            self._stream.read(1)


class _Majors:
    """The rows (columns for csc) of the entries from `first` on, computed from the bounds in `indptr`."""

    def __init__(self, file: MatrixFile, archive, first: int):
        self._path, self._at = file.path, first
        self._bounds = _Member(file.path, archive, "indptr")
        self._left = self._bounds.size - 1
        self._row = 0  # the row that ends at the first of `ends`
        self._ends = np.empty(0, np.int64)
        self._end = int(self._bounds.read(1)[0])
        if self._end != 0:
            raise FileError(
                f"{self._path}: 'indptr' begins with {self._end} instead of 0; save the matrix again"
            )

    def read(self, count: int) -> np.ndarray:
        """The rows of the next `count` entries."""
        rows = []
        while count:
            if self._end <= self._at:
                self._next()
                continue
            stop = min(self._at + count, self._end)
            rows.append(self._row + np.searchsorted(self._ends, np.arange(self._at, stop), side="right"))
            count -= stop - self._at
            self._at = stop
        return np.concatenate(rows)

    def end(self) -> None:
        """Check after the last entry that the remaining bounds belong to empty rows."""
        while self._left:
            self._next()
        if self._end != self._at:
            raise FileError(
                f"{self._path}: 'indptr' ends with {self._end}, but there are {self._at} entries; save the matrix again"
            )
        self._bounds.end()

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


class _Bounded(io.RawIOBase):
    """A file that reads at most AT_ONCE bytes at a time."""

    def __init__(self, file):
        self._file = file

    def read(self, count: int = -1) -> bytes:
        if count > AT_ONCE:
            raise zipfile.BadZipFile(f"{count} bytes of it would be read at once")
        return self._file.read(count if count >= 0 else AT_ONCE)

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True


@contextmanager
def _opened(path: Path):
    """Opens the archive; turns its errors into FileError."""
    try:
        with opened(path) as file, zipfile.ZipFile(_Bounded(file)) as archive:
            yield archive
    except FileError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, struct.error) as error:
        raise FileError(f"{path}: the file is cut short or damaged ({error}); get it again") from error


def _whole(path: Path, archive, name: str) -> np.ndarray:
    """A whole small array of the archive."""
    member = _Member(path, archive, name)
    if member.size * member.dtype.itemsize > SMALL:
        raise FileError(f"{path}: array {name!r} has the shape {member.shape}; save the matrix again")
    return member.read(member.size).reshape(member.shape)
