"""SciPy's sparse matrix-vector product."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from kernels.sparse.csr import Csr
from kernels.sparse.orders import in_order
from kernels.sparse.product import Product


def _missing() -> str | None:
    return None if find_spec("scipy") else "scipy is not installed; `pip install scipy` brings it"


@in_order("scipy", backend="scipy", available=_missing)
def library(matrix: Csr, threads: int = 1) -> Product:
    """`csr_matvec`, the kernel of `csr_array @ x`, called without the allocation of a result.

    Adds each row left to right, from +0.0, always in one thread. With `rows` it multiplies into its own vector, then
    copies to the places.
    """
    from scipy.sparse import _sparsetools  # the public function allocates, which would distort timings

    kernel, a = _sparsetools.csr_matvec, matrix
    wide = a.nnz > np.iinfo(np.int32).max
    indices = a.indices.astype(np.int64) if wide else a.indices  # both index arrays must be of one type
    indptr = a.indptr if wide else a.indptr.astype(np.int32)
    own = None if a.rows is None else np.empty(a.m, a.dtype)

    def multiply(x, y):
        to = y[: a.m] if own is None else own
        to[:] = 0
        kernel(a.m, a.columns, indptr, indices, a.data, x, to)
        if own is not None:
            y[a.rows] = own

    return Product(matrix, "scipy (scipy)", multiply)
