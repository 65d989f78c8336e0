"""ILU(0) of the diagonal blocks of a sparse matrix: an incomplete factorisation without fill, block by block.

L U = A at every entry that A has inside a block; entries between blocks are ignored (Meijerink & van der Vorst, 1977;
Saad, Iterative Methods for Sparse Linear Systems, 2003, section 10.3.2). One thread eliminates the rows of a block in
their order, so the bits of a block depend on the block alone: the guarantee is `layout`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernels import _native
from kernels.sparse.csr import Csr
from kernels.threads import checked

PROBLEMS = (  # counted from 1, as in kernels/native/ilu.cpp
    "has no diagonal entry: store one, even if it is zero",
    "has two entries in one column: add them first",
    "has an entry that is NaN or infinite",
    "has a diagonal entry that is not above zero, so no scaling makes all pivots positive",
    "has no usable pivot for any scaling of the diagonal",
)


class FactorError(ValueError):
    """The error for a block without factors: `row` of the matrix, and `why`."""

    def __init__(self, row: int, block: int, why: str):
        super().__init__(f"ILU(0): row {row} (block {block}) {why}")
        self.row, self.why = row, why


@dataclass(frozen=True, eq=False)
class Factors:
    """The factors of all blocks: L has ones on its diagonal, U has `pivots`.

    If a block had unusable pivots, its diagonal was scaled by 1 + shift first (Manteuffel, 1980).
    """

    starts: np.ndarray  # int64 (blocks + 1,)
    lower: Csr  # L without its diagonal
    upper: Csr  # U without its diagonal
    pivots: np.ndarray  # (n,)
    inverse: np.ndarray  # (n,): one over each pivot
    shifts: np.ndarray  # float64 (blocks,)
    threads: int

    def solve(self, r: np.ndarray, z: np.ndarray) -> None:
        """z = U^-1 L^-1 r over the rows of the matrix; r and z may be one array; elements beyond the rows stay.

        Each row first subtracts the products of all columns but the one nearest to the diagonal, added as a row of
        `csr`, then the product of this column. Pivots divide by multiplication with their inverses. Raises TypeError
        and ValueError for vectors that do not fit.
        """
        _check_vector("r", r, self.pivots)
        _check_vector("z", z, self.pivots)
        lower, upper = ((t.indptr, t.indices, t.data) for t in (self.lower, self.upper))
        _native.ilu_solve(self.starts, *lower, *upper, self.inverse, r, z, self.threads)

    @property
    def flops(self) -> int:
        """Operations of one `solve`: a multiplication and a subtraction per entry, a multiplication per row."""
        return 2 * (self.lower.nnz + self.upper.nnz) + len(self.pivots)

    @property
    def nbytes(self) -> int:
        """The fewest bytes that one `solve` moves: factors, inverse pivots, r and z once (a block stays in cache)."""
        factors = sum(t.data.nbytes + t.indices.nbytes + t.indptr.nbytes for t in (self.lower, self.upper))
        return factors + 3 * self.pivots.nbytes


def factor(matrix: Csr, starts: np.ndarray, threads: int = 1, positive: bool = False) -> Factors:
    """Factors the blocks of rows starts[b] ... starts[b + 1] - 1 of `matrix`, entries in any order.

    A pivot must exceed the rounding error of its diagonal entry and, with `positive`, be above zero. Otherwise the
    diagonal of its block is scaled by 1 + shift, with shift = 1e-3, 2e-3, 4e-3, ... until all pivots are usable.
    `threads` (0: OpenMP's default) share the blocks, in `solve` too.

    Raises TypeError for `starts` of another type, ValueError for wrong bounds and for a matrix that has `rows`.
    FactorError names the row of a block that lacks a diagonal entry, has a column twice, has entries that are not
    finite, or has no usable pivots.
    """
    if matrix.rows is not None:
        raise ValueError("ILU(0): the matrix has `rows`: give a whole matrix, without `rows`")
    _check_starts(starts, matrix.m)
    threads = checked(threads)
    factors = _native.ilu_factor(matrix.indptr, matrix.indices, matrix.data, starts, positive, threads)
    if len(factors) == 2:
        problem, row = factors
        block = int(np.searchsorted(starts, row, side="right")) - 1
        raise FactorError(row, block, PROBLEMS[problem - 1])
    lower, upper = (Csr(factors[k], factors[k + 1], factors[k + 2], matrix.m) for k in (0, 3))
    return Factors(starts, lower, upper, factors[6], factors[7], factors[8], threads)


def _check_starts(starts, m: int) -> None:
    if not isinstance(starts, np.ndarray) or starts.dtype != np.int64 or starts.ndim != 1:
        raise TypeError("ILU(0): starts must be a NumPy vector of int64, the bounds of the blocks")
    if not len(starts) or starts[0] != 0 or starts[-1] != m or (np.diff(starts) < 0).any():
        raise ValueError(f"ILU(0): starts must ascend from 0 to the {m} rows of the matrix, got {starts}")


def _check_vector(name: str, v, like: np.ndarray) -> None:
    if not isinstance(v, np.ndarray) or v.dtype != like.dtype:
        raise TypeError(
            f"ILU(0): {name} is {getattr(v, 'dtype', type(v).__name__)}, expected a NumPy array of {like.dtype}"
        )
    if v.ndim != 1 or len(v) < len(like) or not v.flags.c_contiguous:
        raise ValueError(
            f"ILU(0): {name} has shape {v.shape}, expected a contiguous vector of {len(like)} or more"
        )
