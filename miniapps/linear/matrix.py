"""Sparse matrices over ranks: every rank holds its rows, and gets the vector elements that they need from others.

A row is one sum in the order of the global columns, so the bits of a product do not depend on owners. Rows without
ghosts are multiplied while the ghosts are exchanged.
"""

import itertools
import time
from importlib import import_module

import numpy as np

from kernels import sparse
from kernels.registry import get
from miniapps.layout import ghosts
from miniapps.layout.rows import Rows
from miniapps.system.device import host
from miniapps.trace.schema import WAIT

INDEX_MAX = np.iinfo(np.int32).max  # of a local column


class Matrix:
    """A sparse matrix of which this rank holds the rows of `rows`; `apply(x, y)` is y = A x.

    Parameters: `columns` are the Rows of the operand (those of a square matrix: the same object); `entries` = (indptr
    int64 (m + 1,), global columns int64 (nnz,), data (nnz,)) of the own rows in local order, each row in ascending
    order of global columns, which is the order of addition; `variant`, `backend`, `threads` and `parameters` choose
    the kernel of `kernels.sparse`; `dtype`: of values and vectors; `trace`: the Tracer that gets the events `spmv` and,
    inside, `halo` (waiting).

    `operand()` and `result()` make vectors, arrays of the backend. Collective over `comm`. Raises ValueError for wrong
    `entries` or unsorted columns, and ChoiceError for a kernel that is unknown or cannot run here.

    Attributes: `n` (global rows), `nnz` (of all ranks), `flops` and `nbytes` (of this rank in one product: additions
    and multiplications; the bytes of matrix, operand and result, each once), `comm`, `rows`, `columns`, `dtype`, `xp`
    (the array module), `trace`, `local` (Csr of the own rows with the columns of an operand; absent after `release()`).
    """

    def __init__(
        self,
        comm,
        rows: Rows,
        columns: Rows,
        entries,
        variant: str = "csr",
        backend: str = "native",
        dtype="float64",
        threads: int = 1,
        trace=None,
        **parameters,
    ):
        planner = get("spmv", variant, backend)
        self.comm, self.rows, self.columns, self.dtype = comm, rows, columns, np.dtype(dtype)
        self.xp = import_module("cupy") if backend == "cupy" else np
        indptr, at, data = _checked(rows, columns, entries)
        local, needed = _localised(columns, at)
        self._length = columns.m + len(needed)
        self.local = sparse.Csr(indptr, local, data.astype(self.dtype, copy=False), self._length, None)
        self._diagonal = _diagonal(self.local) if rows is columns else None
        inner, outer = _parts(self.local, columns.m)
        self._inner, self._outer = (
            planner(part, threads=threads, **parameters) if part.m else _nothing for part in (inner, outer)
        )
        planned = ghosts.plan(columns, comm, needed, self.dtype, self.xp)
        self._ghosts: ghosts.Ghosts | ghosts.WatchedGhosts = planned
        self._needed = needed
        self.n = rows.n
        self.nnz = comm.allreduce(len(at))
        self.flops = 2 * len(at)
        stored = indptr.nbytes + local.nbytes + self.local.data.nbytes
        self.nbytes = stored + (self._length + rows.m) * self.dtype.itemsize
        self.trace = trace
        self._clock, self._event, self._spmv, self._halo = time.perf_counter_ns, _unseen, 0, 0
        if trace is not None:
            self._clock, self._event = trace.clock, trace.event
            self._spmv, self._halo = trace.name("spmv"), trace.name("halo", WAIT)
            trace.partners("halo", planned.partners)
            planned.messages.counted = trace.messages("halo", planned.messages.sent)

    def operand(self):
        """A vector of zeros to multiply: `columns.m` own elements and room for the ghosts after them."""
        return self.xp.zeros(self._length, self.dtype)

    def result(self):
        """A vector of zeros (rows.m,) for a product."""
        return self.xp.zeros(self.rows.m, self.dtype)

    def apply(self, x, y) -> None:
        """y[:rows.m] = A x. `x`: like `operand()`, gets its ghosts; `y`: at least as long as `result()`."""
        begin = self._clock()
        self._ghosts.start(x)
        self._inner(x, y)
        waiting = self._clock()
        self._ghosts.finish(x)
        self._event(self._halo, waiting, self._ghosts.nbytes)
        self._outer(x, y)
        self._event(self._spmv, begin, self.nbytes, self.flops)

    def residual(self, x, b) -> np.ndarray:
        """b - A x with twice the digits of float64, rounded to float64 (rows.m,), on the host. x and b: like
        `operand()` and `result()`; fills the ghosts of x. Collective."""
        self._ghosts.start(x)
        self._ghosts.finish(x)
        r = np.zeros(self.rows.m)
        for product in (self._inner, self._outer):
            if isinstance(product, sparse.Product):
                sparse.residual(product.matrix, host(x), host(b), r)
        return r

    def watched(self, watch) -> "Matrix":
        """Let `miniapps.runner.watch` record operands and results of every product of this square matrix; call it
        before `release()`. Returns the matrix."""
        rows, csr, apply = self.rows, self.local, self.apply
        of = np.concatenate([rows.global_rows(), self._needed])  # global columns by local ones
        needs = []
        for start, stop in itertools.pairwise(rows.local_starts.tolist()):
            places = np.unique(csr.indices[csr.indptr[start] : csr.indptr[stop]])
            places = places[(places < start) | (places >= stop)]
            needs.append(self.xp.asarray(places[np.argsort(of[places])]))
        owners = rows.owner_of(self._needed)
        self._ghosts = ghosts.WatchedGhosts(self._ghosts, rows, needs, owners, watch)

        def watched_apply(x, y) -> None:
            apply(x, y)
            watch.kernel("spmv", rows.own, rows.parts(y))

        # Only for this matrix, so that others have no cost.
        self.apply = watched_apply  # type: ignore[method-assign]
        return self

    def diagonal(self):
        """The diagonal of the own rows, (m,), +0.0 for missing entries. Raises ValueError for a rectangular matrix."""
        if self._diagonal is None:
            raise ValueError("only a matrix whose rows and columns are the same Rows has a diagonal")
        return self.xp.asarray(self._diagonal)

    def release(self) -> None:
        """Free `local`, which only the construction of preconditioners needs."""
        del self.local

    def free(self) -> None:
        """Free requests and communicators. Collective."""
        self._ghosts.free()


def _checked(rows: Rows, columns: Rows, entries):
    indptr, at, data = entries
    indptr, at = np.ascontiguousarray(indptr, np.int64), np.ascontiguousarray(at, np.int64)
    where = f"rank {rows.rank}: a matrix of {rows.m} own rows"
    if indptr.shape != (rows.m + 1,) or indptr[0] != 0 or (np.diff(indptr) < 0).any():
        raise ValueError(f"{where}: indptr must be {rows.m + 1} ascending numbers from 0")
    if at.shape != (indptr[-1],) or np.shape(data) != at.shape:
        raise ValueError(
            f"{where}: indptr ends at {indptr[-1]}, but there are {len(at)} columns, {len(data)} data"
        )
    if len(at) and (at.min() < 0 or at.max() >= columns.n):
        raise ValueError(f"{where}: columns {at.min()} ... {at.max()} are not in 0 ... {columns.n - 1}")
    falls = np.flatnonzero(np.diff(at) <= 0) + 1  # only where a row begins
    within = falls[~np.isin(falls, indptr)]
    if len(within):
        row = rows.global_rows()[np.searchsorted(indptr, within[0], side="right") - 1]
        raise ValueError(
            f"{where}: the columns of row {row} are not ascending; sort them and add up duplicates"
        )
    return indptr, at, np.ascontiguousarray(data)


def _localised(columns: Rows, at):
    """(local columns int32, global columns of the ghosts): own elements keep their place, ghosts follow ascending."""
    local = columns.local_of(at)
    absent = local < 0
    needed, place = np.unique(at[absent], return_inverse=True)
    if columns.m + len(needed) > INDEX_MAX:
        raise ValueError(
            f"rank {columns.rank}: {columns.m} own columns and {len(needed)} of others are too many for a local index "
            f"of 32 bits; start more ranks"
        )
    local[absent] = columns.m + place
    return local.astype(np.int32), needed


def _diagonal(csr):
    row = csr.row_of_entries()
    on_diagonal = csr.indices == row
    diagonal = np.zeros(csr.m, csr.dtype)
    diagonal[row[on_diagonal]] = csr.data[on_diagonal]
    return diagonal


def _parts(csr, own: int):
    """(rows without ghosts, rows with ghosts), each a Csr with the numbers of its rows."""
    ghosts_before = np.concatenate([[0], np.cumsum(csr.indices >= own)])
    outer = np.diff(ghosts_before[csr.indptr]) > 0
    return (csr if not outer.any() else _rows_of(csr, ~outer)), _rows_of(csr, outer)


def _rows_of(csr, chosen: np.ndarray):
    """The rows selected by `chosen`, bool (m,)."""
    lengths = np.diff(csr.indptr)
    entries = np.repeat(chosen, lengths)
    indptr = np.concatenate([[0], np.cumsum(lengths[chosen])])
    rows = np.flatnonzero(chosen).astype(np.int32)
    return sparse.Csr(indptr, csr.indices[entries], csr.data[entries], csr.columns, rows)


def _nothing(x, y):
    """The product of no rows."""


def _unseen(name, start, nbytes=0, flops=0):
    """The event of a matrix without a trace."""
