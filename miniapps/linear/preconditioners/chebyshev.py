"""Chebyshev: M is a polynomial in A, scaled by its diagonal; products only, no dot products."""

import numpy as np

from miniapps.linear.preconditioners.errors import PreconditionerError, inverse_diagonal
from miniapps.linear.preconditioners.polynomial import Polynomial
from miniapps.system.device import host


class Preconditioner:
    """z = p(D^-1 A) D^-1 r, p of degree `degree` - 1, on [upper / ratio, upper]; upper by Gershgorin's circles.

    M has positive eigenvalues if A is symmetric with positive eigenvalues.
    """

    symmetric = True

    def __init__(
        self, matrix, degree: int = 4, ratio: float = 30.0, threads: int = 1, backend: str = "native"
    ):
        inverse = inverse_diagonal(matrix, "chebyshev", positive=True)
        self.upper = gershgorin(matrix, inverse)
        self._polynomial = Polynomial(matrix, inverse, self.upper, degree, ratio, threads, backend)
        self.flops = self._polynomial.count("flops", whole=False)
        self.nbytes = self._polynomial.count("nbytes", whole=False)

    def apply(self, r, z) -> None:
        """z = M r."""
        self._polynomial.smooth(r, z)

    def free(self) -> None:
        """Nothing to free."""


def gershgorin(matrix, inverse) -> float:
    """Upper bound of the eigenvalues of D^-1 A: the largest sum of |a_ij| / |a_ii| of all rows. Collective.

    `inverse`: (m,) 1 / a_ii. Raises PreconditionerError on all ranks if the matrix has NaN or infinity.
    """
    csr, m = matrix.local, matrix.rows.m
    sums = np.bincount(np.repeat(np.arange(m), np.diff(csr.indptr)), np.abs(csr.data), m)  # adds in order
    largest = (sums * np.abs(host(inverse))).max(initial=0.0)
    bound = float(np.max(matrix.comm.allgather(float(largest))))  # NaN where there is one
    if not np.isfinite(bound):
        raise PreconditionerError(
            f"the largest sum of |a_ij| / |a_ii| of a row is {bound}, but chebyshev needs a matrix of finite elements; "
            "correct the matrix, or choose another preconditioner"
        )
    return bound
