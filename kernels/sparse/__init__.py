"""Sparse matrix-vector products y = A x, one file per backend; importing this package registers their planners.

    product = get("spmv", "csr")(Csr(indptr, indices, data, columns), threads=4)
    product(x, y)

A guarantee here is about one process. `run`: the same bits whenever the same matrix is multiplied. `layout`: also with
another number of threads, and for a row at another place in a matrix. See `kernels.sparse.ilu` for ILU(0).
"""

from kernels.sparse import native, reference, scipy
from kernels.sparse.csr import Csr
from kernels.sparse.product import Product
from kernels.sparse.residual import residual

from kernels.sparse import cupy, emulated  # isort: skip  (last: `registry.get` takes the first that can run)

__all__ = ["Csr", "Product", "cupy", "emulated", "native", "reference", "residual", "scipy"]
