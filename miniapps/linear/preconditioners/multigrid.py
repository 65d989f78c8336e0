"""Geometric multigrid on a box: one V-cycle from zero, with Galerkin operators on the coarser boxes.

The smoother is a Chebyshev polynomial, the same before and after, and R = P^T, so M is symmetric and positive. Only
axes with strong coupling are coarsened, so that a point smoother also works for anisotropic problems (semicoarsening;
Trottenberg, Oosterlee & Schueller, Multigrid, 2001, chapter 5). The stencils give bounds of eigenvalues, without global
sums. The coarsest system is solved by multiplying with its inverse.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from miniapps.layout.rows import Rows
from miniapps.linear.box import Box, coarsen, parents
from miniapps.linear.entries import interpolation, restriction, rows
from miniapps.linear.matrix import Matrix
from miniapps.linear.preconditioners.errors import PreconditionerError, inverse_diagonal
from miniapps.linear.preconditioners.polynomial import Polynomial
from miniapps.linear.stencils import Stencil, galerkin

COARSEST = 4  # axes with at most this number of points are not coarsened
STRONG = 0.25  # axes with at least this part of the strongest coupling are coarsened


@dataclass
class _Level:
    """A level above the coarsest: its smoother, restriction and interpolation, right side and solution below."""

    smoother: Polynomial
    down: Matrix
    up: Matrix
    b: object  # of the coarser box; for the coarsest an operand of the inverse
    x: object  # of the coarser box; an operand of `up`

    def count(self, what: str) -> int:
        return self.smoother.count(what, whole=True) + getattr(self.down, what) + getattr(self.up, what)


class Preconditioner:
    """z = one V-cycle for A z = r, with `degree` steps of smoothing on [upper / ratio, upper] before and after.

    `matrix`, made from `box` and `stencil`, is the finest operator. A coarse block has the owner of the fine block that
    contains its first point: on coarser levels ranks own fewer blocks, and finally some own none.
    """

    symmetric = True

    def __init__(
        self,
        matrix,
        box: Box,
        stencil: Stencil,
        degree: int = 2,
        ratio: float = 4.0,
        threads: int = 1,
        backend: str = "native",
    ):
        _check(matrix, box, stencil)
        self.boxes, stencils = zip(*hierarchy(box, stencil), strict=True)
        owned = [matrix.rows]
        for fine, coarse in pairwise(self.boxes):
            owner = owned[-1].owner[parents(fine, coarse)]
            owned.append(Rows(coarse.starts, owned[-1].size, owned[-1].rank, owner=owner))

        def matrix_of(below, above, entries):
            return Matrix(
                matrix.comm, below, above, entries, backend=backend, dtype=matrix.dtype, threads=threads,
                trace=matrix.trace,
            )  # fmt: skip

        coarser = list(zip(self.boxes, stencils, owned, strict=True))[1:-1]
        operators = [matrix] + [matrix_of(own, own, rows(b, of, own.own)) for b, of, own in coarser]
        self._inverse = matrix_of(owned[-1], owned[-1], _inverse(self.boxes[-1], stencils[-1], owned[-1]))
        self._last = self._inverse.operand()
        self._levels = []
        for level, (fine, coarse) in enumerate(pairwise(self.boxes)):
            above, below = owned[level : level + 2]
            down = matrix_of(below, above, restriction(fine, coarse, below.own))
            up = matrix_of(above, below, interpolation(fine, coarse, above.own))
            operator, bound, q = operators[level], stencils[level].bound(), down.operand()
            inverse = inverse_diagonal(operator, "multigrid", positive=True)
            smoother = Polynomial(operator, inverse, bound, degree, ratio, threads, backend, q)
            b = down.result() if level + 2 < len(owned) else self._last
            self._levels.append(_Level(smoother, down, up, b, up.operand()))
        self._matrices = [
            *operators[1:],
            self._inverse,
            *(m for at in self._levels for m in (at.down, at.up)),
        ]
        for one in self._matrices:
            one.release()
        self._m = matrix.rows.m
        self.flops, self.nbytes = (
            getattr(self._inverse, what) + sum(level.count(what) for level in self._levels)
            for what in ("flops", "nbytes")
        )

    def apply(self, r, z) -> None:
        """z = M r."""
        if not self._levels:
            self._last[: self._m] = r[: self._m]
            r = self._last
        b, x, above = r, z, []
        for level in self._levels:
            level.smoother.smooth(b, x)
            level.smoother.residual(b, x)
            level.down.apply(level.smoother.q, level.b)
            above.append((level, b, x))
            b, x = level.b, level.x
        self._inverse.apply(b, x)
        for level, b, x in reversed(above):
            level.up.apply(level.x, level.smoother.d)
            level.smoother.correct(b, x)

    def free(self) -> None:
        """Free the matrices of the coarser boxes. Collective."""
        for matrix in self._matrices:
            matrix.free()


def hierarchy(box: Box, stencil: Stencil) -> list[tuple[Box, Stencil]]:
    """The boxes, finest first, and their Galerkin operators; the last has at most COARSEST points along each axis."""
    levels = [(box, stencil)]
    while max(box.shape) > COARSEST:
        couplings, long = stencil.couplings(), np.array(box.shape) > COARSEST
        axes = tuple(long & (couplings >= STRONG * couplings[long].max()))
        stencil, box = galerkin(stencil, box.shape, axes), coarsen(box, axes)
        levels.append((box, stencil))
    return levels


def inverted(a: np.ndarray) -> np.ndarray:
    """The inverse of a symmetric positive definite matrix, symmetric in every bit.

    Gauss-Jordan elimination in element-wise operations, without BLAS, whose bits may depend on threads.
    """
    n = len(a)
    both = np.concatenate([a, np.eye(n)], axis=1)
    for k in range(n):
        both[k] /= both[k, k]
        others = np.arange(n) != k
        both[others] -= both[others, k, None] * both[k]
    return (both[:, n:] + both[:, n:].T) / 2


def _inverse(box: Box, stencil: Stencil, owned: Rows):
    """The own rows of the inverse, each with all columns."""
    indptr, columns, data = rows(box, stencil, np.arange(box.count))
    n, m = box.n, owned.m
    a = np.zeros((n, n))
    a[np.repeat(np.arange(n), np.diff(indptr)), columns] = data
    return np.arange(m + 1) * n, np.tile(np.arange(n), m), inverted(a)[owned.global_rows()].reshape(-1)


def _check(matrix, box, stencil) -> None:
    if box is None or stencil is None:
        raise PreconditionerError(
            "multigrid is geometric and needs a problem on a box; for other matrices choose jacobi, block-jacobi or "
            "chebyshev"
        )
    if not np.array_equal(matrix.rows.starts, box.starts):
        raise PreconditionerError(
            f"multigrid was given a box of {box.n} points in {box.count} blocks for a matrix of {matrix.n} rows in "
            f"{matrix.rows.count} blocks; give the box of the matrix"
        )
    if not stencil.symmetric:
        raise PreconditionerError(
            "multigrid needs a symmetric problem, and this one has convection; choose jacobi or block-jacobi"
        )
