"""The product that a planner returns: y = A x for one matrix, with its least costs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import numpy as np

from kernels.environment import guarded
from kernels.sparse.csr import Csr


class Product:
    """`product(x, y)` writes A x to the places of the matrix's rows in y, and does not change the rest of y.

    x: at least `matrix.columns` elements; y: at least `matrix.least`. Both are vectors of the matrix's type in the
    memory of the backend, and must not overlap. Raises TypeError and ValueError for others.
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
        """Operations of one product: a multiplication and an addition for each entry."""
        return 2 * self.matrix.nnz

    @cached_property
    def nbytes(self) -> int:
        """The fewest bytes that one product moves: the matrix, the elements of x with an entry, and y, each once."""
        a = self.matrix
        places = 0 if a.rows is None else a.rows.nbytes
        vectors = (a.used_columns() + a.m) * a.dtype.itemsize
        return a.data.nbytes + a.indices.nbytes + a.indptr.nbytes + places + vectors

    def _check(self, what: str, v, least: int) -> None:
        if not isinstance(v, self._vector) or v.dtype != self._dtype:
            given = getattr(v, "dtype", None) or type(v).__name__
            raise TypeError(
                f"spmv {self._name}: {what} is {given} of {type(v).__module__}, expected a"
                f" {self._vector.__module__} array of {self._dtype}, the type of the matrix"
            )
        if v.ndim != 1 or len(v) < least or not v.flags.c_contiguous:
            raise ValueError(
                f"spmv {self._name}: {what} has shape {v.shape}, expected a contiguous vector of {least} or more"
            )
