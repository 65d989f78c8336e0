"""Block Jacobi: separate incomplete factors of each logical block, so that ranks exchange nothing.

The blocks belong to the problem, not to ranks, so M is the same for any number of ranks.
"""

import numpy as np

from kernels.sparse import ilu
from miniapps.linear.preconditioners.errors import PreconditionerError


class Preconditioner:
    """z = (L U)^-1 r with the ILU(0) factors of each diagonal block of A.

    If the whole diagonal of A is positive, all pivots are positive too; where needed, the diagonal of a block is first
    scaled by 1 + shift (Manteuffel 1980). Then M is positive, as conjugate gradients need. `shifts`: of own blocks.
    """

    symmetric = True

    def __init__(self, matrix, threads: int = 1, backend: str = "native"):
        if backend == "cupy":
            raise PreconditionerError(
                "block-jacobi solves triangular systems row by row and has no GPU kernel; choose jacobi, chebyshev or "
                "multigrid there, or backend native"
            )
        positive = all(matrix.comm.allgather(bool((np.asarray(matrix.diagonal()) > 0).all())))
        refused = (matrix.n, "")
        try:
            self._factors = ilu.factor(matrix.local, matrix.rows.local_starts, threads, positive)
        except ilu.FactorError as error:
            refused = (int(matrix.rows.global_rows()[error.row]), error.why)
        row, why = min(matrix.comm.allgather(refused))
        if row < matrix.n:
            raise PreconditionerError(
                f"block-jacobi: row {row} {why}; correct the matrix, or choose another preconditioner or none"
            )
        self.shifts, self.flops, self.nbytes = self._factors.shifts, self._factors.flops, self._factors.nbytes

    def apply(self, r, z) -> None:
        """z = M r."""
        self._factors.solve(r, z)

    def free(self) -> None:
        """Nothing to free."""
