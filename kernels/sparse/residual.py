"""Residuals b - A x with twice the digits of float64, to judge solutions."""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.sparse.csr import Csr
from kernels.threads import checked

NO_ROWS = np.zeros(0, np.int32)


def residual(matrix: Csr, x: np.ndarray, b: np.ndarray, r: np.ndarray, threads: int = 1) -> None:
    """Writes b - A x to the places of the rows in `r` (float64), as if computed with twice the digits and rounded once.

    x: at least `matrix.columns` elements; b and r: at least `matrix.least`. x and b have the matrix's type; all are
    contiguous. Raises TypeError and ValueError for others. Threads do not change bits (Ogita, Rump & Oishi 2005, Dot2).
    """
    for name, vector, dtype, least in (
        ("x", x, matrix.dtype, matrix.columns),
        ("b", b, matrix.dtype, matrix.least),
        ("r", r, np.float64, matrix.least),
    ):
        if vector.dtype != dtype:
            raise TypeError(f"residual: {name} is {vector.dtype}, expected {np.dtype(dtype)}")
        if vector.ndim != 1 or len(vector) < least or not vector.flags.c_contiguous:
            raise ValueError(
                f"residual: {name} has shape {vector.shape}, expected a contiguous vector of {least} or more"
            )
    rows = NO_ROWS if matrix.rows is None else matrix.rows
    _native.spmv_residual(matrix.indptr, matrix.indices, matrix.data, rows, x, b, r, checked(threads))
