"""What a planner returns: y = A x for one matrix, with what it costs at least."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from kernels.environment import guarded
from kernels.sparse.csr import Csr


class Product:
    """`product(x, y)` writes the rows of the matrix into y and leaves the rest of y alone.

    x: at least `matrix.columns` elements, y: as many as the places of the rows ask for; vectors of the matrix' type in
    the memory of the backend, which must not overlap. Raises TypeError and ValueError for others.
    """

    def __init__(self, matrix: Csr, name: str, multiply: Callable, vector: type[np.ndarray] = np.ndarray):
        self.matrix = matrix
        self._name, self._multiply, self._vector = name, multiply, vector
        self._columns, self._least, self._dtype = matrix.columns, matrix.least, matrix.dtype

    @guarded
    def __call__(self, x, y) -> None:
        self._check("x", x, self._columns)
        self._check("y", y, self._least)
        self._multiply(x, y)

    @property
    def flops(self) -> int:
        """A multiplication and an addition for each entry."""
        return 2 * self.matrix.nnz

    @cached_property
    def nbytes(self) -> int:
        """What must move at least: the matrix once, the elements of x that have a column once, y once."""
        a = self.matrix
        places = 0 if a.rows is None else a.rows.nbytes
        vectors = (a.used_columns() + a.m) * a.dtype.itemsize
        return a.data.nbytes + a.indices.nbytes + a.indptr.nbytes + places + vectors

    def _check(self, what: str, v, least: int) -> None:
        if not isinstance(v, self._vector) or v.dtype != self._dtype:
            given = getattr(v, "dtype", None) or type(v).__name__
            raise TypeError(
                f"spmv {self._name}: {what} is {given} of {type(v).__module__}, expected a"
                f" {self._vector.__module__} array of {self._dtype}, as the matrix is"
            )
        if v.ndim != 1 or len(v) < least or not v.flags.c_contiguous:
            raise ValueError(
                f"spmv {self._name}: {what} has shape {v.shape}, expected a contiguous vector of {least} or more"
            )
