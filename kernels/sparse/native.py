"""Sparse matrix-vector products in C++."""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sparse.csr import Csr
from kernels.sparse.orders import in_order
from kernels.sparse.product import Product
from kernels.threads import checked


@in_order("csr", backend="native")
def csr(matrix: Csr, threads: int = 1) -> Product:
    """Whole rows, assigned to `threads` (0: OpenMP's default) in runs of equal work.

    Fixed: a row is one sum in the lanes of `reference`, so threads do not change bits.
    """
    return _by_rows(_native.spmv_csr, "csr", matrix, threads)


@in_order("merge", backend="native")
def merge(matrix: Csr, threads: int = 1) -> Product:
    """One piece of equal work per thread (`threads`, 0: OpenMP's default), cut anywhere, also inside rows.

    The pieces of a row are sums in lanes as in `csr`, added in their order (Merrill & Garland, SC 2016). A row that is
    not cut has the bits of `csr`; the bits of a cut row depend on the number of pieces, but not on chance.
    """
    return _by_rows(_native.spmv_merge, "merge", matrix, threads)


@in_order("coo-atomic", backend="native")
def coo_atomic(matrix: Csr, threads: int = 1) -> Product:
    """One `omp atomic` per entry, by `threads` (0: OpenMP's default) in random interleaving: not fixed."""
    places, threads = coordinates(matrix), checked(threads)

    def multiply(x, y):
        clear(matrix, y)
        _native.spmv_atomic(places, matrix.indices, matrix.data, x, y, threads)

    return Product(matrix, "coo-atomic (native)", multiply)


def coordinates(matrix: Csr) -> np.ndarray:
    """The place in y of every entry, int32 (nnz,)."""
    return np.repeat(matrix.places, np.diff(matrix.indptr))


def clear(matrix: Csr, y: np.ndarray) -> None:
    """Writes +0.0 to the places of the rows."""
    y[slice(0, matrix.m) if matrix.rows is None else matrix.rows] = 0


def _by_rows(kernel, name: str, a: Csr, threads: int) -> Product:
    threads = checked(threads)
    arrays = (a.indptr, a.indices, a.data, np.zeros(0, np.int32) if a.rows is None else a.rows)

    def multiply(x, y):
        kernel(*arrays, x, y, threads)

    return Product(a, f"{name} (native)", multiply)
