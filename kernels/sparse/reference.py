"""The definition of a sparse matrix-vector product."""

from __future__ import annotations

import numpy as np

from kernels.sparse.csr import Csr
from kernels.sparse.orders import in_order
from kernels.sparse.product import Product

LANES = 4  # as in kernels/native/entries.hpp and kernels/cuda/spmv.cu


@in_order("csr", backend="reference")
def csr(matrix: Csr, threads: int = 1) -> Product:
    """Entry e of a row goes to lane e mod 4; the row is (l0 + l2) + (l1 + l3). The row alone fixes the order.

    Every lane starts from +0.0 and adds its products, each rounded to the matrix's type, in ascending order. Always
    uses one thread.
    """

    def multiply(x, y):
        y[matrix.places] = _row_sums(matrix, x)

    return Product(matrix, "csr (reference)", multiply)


def _row_sums(a: Csr, x: np.ndarray) -> np.ndarray:
    """The sums of all rows; step k adds entry k of every row."""
    lanes = np.zeros((LANES, a.m), a.dtype)
    length = np.diff(a.indptr)
    rows = np.arange(a.m)
    with np.errstate(all="ignore"):
        for k in range(int(length.max(initial=0))):
            rows = rows[length[rows] > k]
            entries = a.indptr[rows] + k
            lanes[k % LANES, rows] += a.data[entries] * x[a.indices[entries]]
        return (lanes[0] + lanes[2]) + (lanes[1] + lanes[3])
