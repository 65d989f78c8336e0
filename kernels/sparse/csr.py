"""A sparse matrix by rows (CSR) in host memory, checked once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

TYPES = ("float64", "float32")


@dataclass(frozen=True, eq=False)
class Csr:
    """Rows of a sparse matrix: row i has entries indptr[i] ... indptr[i + 1] - 1, added in that order.

    The caller chooses the order of entries: sorted by global column, a row is the same sum wherever it is stored. The
    matrix may be part of a larger one: `rows` then has the place in y of each row. Arrays must not be changed while a
    product of the matrix is in use.

    Raises TypeError for other types of arrays, ValueError for arrays that do not fit each other, IndexError for an
    impossible column or place, naming the row.
    """

    indptr: np.ndarray  # int64 (m + 1,)
    indices: np.ndarray  # int32 (nnz,): columns
    data: np.ndarray  # float64 or float32 (nnz,)
    columns: int
    rows: np.ndarray | None = None  # int32 (m,), each place once; None: row i goes to y[i]

    def __post_init__(self):
        _require("indptr", self.indptr, ("int64",))
        _require("indices", self.indices, ("int32",))
        _require("data", self.data, TYPES)
        if self.rows is not None:
            _require("rows", self.rows, ("int32",))
        _check_rows(self)
        _check_entries(self)
        if self.rows is not None:
            _check_places(self.rows, self.m)

    @property
    def m(self) -> int:
        """Number of rows."""
        return len(self.indptr) - 1

    @property
    def nnz(self) -> int:
        """Number of entries, stored zeros included."""
        return len(self.data)

    @property
    def dtype(self) -> np.dtype:
        """The type of entries, vectors and sums."""
        return self.data.dtype

    @property
    def places(self) -> np.ndarray:
        """The place in y of each row, int32 (m,)."""
        return np.arange(self.m, dtype=np.int32) if self.rows is None else self.rows

    @property
    def least(self) -> int:
        """The least number of elements of y."""
        return self.m if self.rows is None else int(self.rows.max(initial=-1)) + 1

    def row_of_entries(self) -> np.ndarray:
        """The row of every entry, int64 (nnz,)."""
        return np.repeat(np.arange(self.m), np.diff(self.indptr))

    def used_columns(self) -> int:
        """The number of columns with an entry."""
        used = np.zeros(self.columns, bool)
        used[self.indices] = True
        return int(used.sum())


def _require(name: str, array, types) -> None:
    if not isinstance(array, np.ndarray) or array.dtype.name not in types or not array.dtype.isnative:
        given = f"{array.dtype.str}" if isinstance(array, np.ndarray) else f"{type(array).__name__}"
        raise TypeError(f"Csr: {name} is {given}, expected a NumPy array of {' or '.join(types)}")
    if array.ndim != 1 or not array.flags.c_contiguous or not array.flags.aligned:
        raise ValueError(
            f"Csr: {name} has shape {array.shape}, expected a vector, contiguous and aligned;"
            " np.ascontiguousarray makes one"
        )


def _check_rows(a: Csr) -> None:
    if not len(a.indptr):
        raise ValueError("Csr: indptr is empty, expected the m + 1 bounds of m rows: [0] for none")
    if a.m > np.iinfo(np.int32).max:
        raise ValueError(f"Csr: {a.m} rows, at most 2**31 - 1 are possible: store the matrix in parts")
    if a.indptr[0] != 0:
        raise ValueError(f"Csr: indptr[0] is {a.indptr[0]}, expected 0")
    down = a.indptr[1:] < a.indptr[:-1]
    if down.any():
        row = int(np.argmax(down))
        raise ValueError(
            f"Csr: row {row} would have entries {a.indptr[row]} ... {a.indptr[row + 1]}: indptr must not decrease"
        )
    for name in ("indices", "data"):
        count = len(getattr(a, name))
        if count != a.indptr[-1]:
            raise ValueError(f"Csr: {name} has {count} elements, but indptr ends with {a.indptr[-1]}")
    if a.rows is not None and len(a.rows) != a.m:
        raise ValueError(f"Csr: rows has {len(a.rows)} elements, expected one for each of {a.m} rows")


def _check_entries(a: Csr) -> None:
    if not 0 <= a.columns <= 2**31:
        raise ValueError(f"Csr: {a.columns} columns, expected 0 ... 2**31")
    if a.nnz and (a.indices.min() < 0 or a.indices.max() >= a.columns):
        entry = int(np.argmax((a.indices < 0) | (a.indices >= a.columns)))
        row = int(np.searchsorted(a.indptr, entry, side="right")) - 1
        raise IndexError(
            f"Csr: row {row} has an entry in column {a.indices[entry]} (entry {entry}),"
            f" but there are {a.columns} columns, numbered from 0"
        )


def _check_places(rows: np.ndarray, m: int) -> None:
    if m == 0:
        return
    if rows.min() < 0:
        row = int(np.argmax(rows < 0))
        raise IndexError(f"Csr: rows[{row}] is {rows[row]}, but places in y are numbered from 0")
    if (np.diff(rows) > 0).all():
        return
    order = np.argsort(rows, kind="stable")
    twice = np.flatnonzero(np.diff(rows[order]) == 0)
    if len(twice):
        first, second = order[twice[0]], order[twice[0] + 1]
        raise ValueError(
            f"Csr: rows {first} and {second} both go to y[{rows[first]}]: each place may come once"
        )
