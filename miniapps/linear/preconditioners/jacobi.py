"""Jacobi: M is the inverse of the diagonal."""

from kernels.vectors import backend as vectors_backend
from miniapps.linear.preconditioners.errors import inverse_diagonal
from miniapps.linear.preconditioners.plans import Plans


class Preconditioner:
    """z = D^-1 r, one product per element."""

    symmetric = True

    def __init__(self, matrix, threads: int = 1, backend: str = "native"):
        inverse, starts = inverse_diagonal(matrix, "jacobi", positive=False), matrix.rows.local_starts
        vectors = vectors_backend(backend)

        def plan(r, z):
            return vectors.fuse({"D": inverse, "r": r, "z": z}, "z = D*r", starts=starts, threads=threads)

        self._plans = Plans(plan)
        counted = plan(matrix.xp.empty_like(inverse), matrix.xp.empty_like(inverse))
        self.flops, self.nbytes = counted.flops, counted.nbytes

    def apply(self, r, z) -> None:
        """z = M r."""
        self._plans(r, z)()

    def free(self) -> None:
        """Nothing to free."""
