"""Sparse matrix-vector products on a GPU, in CUDA C++ (kernels/cuda/spmv.cu).

A planner copies the matrix to the current device. x and y are vectors of CuPy on that device; a product returns when
its work is queued on the current stream.
"""

from __future__ import annotations

import operator

from kernels.cuda import kernel
from kernels.sparse.csr import Csr
from kernels.sparse.native import coordinates
from kernels.sparse.orders import in_order
from kernels.sparse.product import Product
from kernels.sums.cupy import missing

NUMBERS = {"float64": "double", "float32": "float"}  # {dtype: type in C++}
LANES, ROW_THREADS, PIECE_THREADS = 4, 256, 128  # as in kernels/cuda/spmv.cu
BLOCKS = 1 << 16  # at most; threads then take several rows or entries each
ITEMS = 15  # rows and entries of a piece: odd, so that threads have no bank conflicts in shared memory
MOST_ITEMS = 48  # the products of a block then fill 48 KiB of shared memory


@in_order("csr", backend="cupy", available=missing)
def csr(matrix: Csr, threads: int = 1) -> Product:
    """Four threads add a row, one for each lane of `reference`: fixed, with the bits of the CPU.

    `threads` is for other backends. A row with much of the matrix is slow, since four threads add it.
    """
    a = _OnDevice(matrix)

    def multiply(x, y):
        a.launch("spmv_csr", LANES * a.m, a.m, *a.entries, *a.places, x, y)

    return a.product("csr", multiply)


@in_order("merge", backend="cupy", available=missing)
def merge(matrix: Csr, threads: int = 1, items: int = ITEMS) -> Product:
    """Pieces of `items` rows and entries, one per thread, cut anywhere; the pieces of a row are added in order.

    The matrix and `items` (1 ... 48) fix the order: the bits are those of `native` with as many threads as there are
    pieces. One thread adds the pieces of a row. `threads` is for other backends.
    """
    if not 1 <= operator.index(items) <= MOST_ITEMS:
        raise ValueError(f"spmv merge (cupy): items {items}: choose 1 ... {MOST_ITEMS}")
    import cupy as xp

    a = _OnDevice(matrix)
    pieces = -(-(a.m + a.nnz) // items)
    left, cut_rows = xp.empty(pieces, a.dtype), xp.empty(pieces + 1, xp.int64)
    shared = items * PIECE_THREADS * a.dtype.itemsize

    def multiply(x, y):
        if pieces == 0:
            return
        run, arguments = (
            a.kernel("spmv_merge"),
            (a.m, a.nnz, items, *a.entries, *a.places, x, y, left, cut_rows),
        )
        run((-(-pieces // PIECE_THREADS),), (PIECE_THREADS,), arguments, shared_mem=shared)
        a.launch("spmv_merge_cut_rows", pieces, pieces, items, a.entries[0], *a.places, left, cut_rows, y)

    return a.product("merge", multiply)


@in_order("coo-atomic", backend="cupy", available=missing)
def coo_atomic(matrix: Csr, threads: int = 1) -> Product:
    """One `atomicAdd` per entry; the hardware chooses the order, so it is not fixed. `threads`: for other backends."""
    import cupy as xp

    a = _OnDevice(matrix)
    places = xp.asarray(coordinates(matrix))

    def multiply(x, y):
        a.launch("spmv_clear", a.m, a.m, *a.places, y)
        a.launch("spmv_coo_atomic", a.nnz, a.nnz, places, *a.entries[1:], x, y)

    return a.product("coo-atomic", multiply)


class _OnDevice:
    """A matrix in the memory of the current device."""

    def __init__(self, matrix: Csr):
        import cupy as xp

        self.matrix, self.m, self.nnz, self.dtype = matrix, matrix.m, matrix.nnz, matrix.dtype
        self.entries = tuple(xp.asarray(v) for v in (matrix.indptr, matrix.indices, matrix.data))
        # The arguments `rows` and `mapped` of the kernels: without places they do not read the array.
        self.places = (self.entries[1], 0) if matrix.rows is None else (xp.asarray(matrix.rows), 1)

    def kernel(self, name: str):
        return kernel("spmv", name, NUMBER=NUMBERS[self.dtype.name])

    def launch(self, name: str, count: int, *arguments) -> None:
        """Queues a kernel for `count` threads, if there are any."""
        if count:
            blocks = min(BLOCKS, -(-count // ROW_THREADS))
            self.kernel(name)((blocks,), (ROW_THREADS,), arguments)

    def product(self, name: str, multiply) -> Product:
        import cupy as xp

        return Product(self.matrix, f"{name} (cupy)", multiply, xp.ndarray)
