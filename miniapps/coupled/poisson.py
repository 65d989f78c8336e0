"""The operator -laplace on blocks, its polynomial preconditioner, and the steps of conjugate gradients with them."""

from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

from miniapps.linear.krylov.chebyshev import semi_iteration

DEGREE = 7  # of the preconditioner, where blocks are wide enough: it and the operator read DEGREE + 1 points around
RANGE = 300.0  # the preconditioner damps the spectrum between its top and a RANGE-th of it; the rest is left to CG


def chebyshev(top: float, bottom: float, degree: int) -> tuple[float, np.ndarray]:
    """(1 / theta, coefficients (degree, 2)) of Chebyshev's semi-iteration for a spectrum in [bottom, top].

    Saad, Iterative Methods for Sparse Linear Systems (2003), algorithm 12.1.
    """
    inverse_theta, factors = semi_iteration(bottom, top)
    return inverse_theta, np.array(list(islice(factors, degree))).reshape(-1, 2)


def residual_pad(blocks) -> int:
    """Halo points of the residual: what the preconditioner can use, at most what a block can give."""
    return min(DEGREE + 1, blocks.by, blocks.bx)


@dataclass
class NegativeLaplacian:
    """A = -laplace by five points on a periodic grid: symmetric, positive but for the constant.

    Preconditioned by a Chebyshev polynomial: `pad` applications of A for one halo exchange and one all-reduce.
    `exchange` fills the halo of fields padded by `pad`, corners included; `exchange_x` the faces of the solution,
    padded by `x_pad`. `kernels`: a stencil backend; `h`: spacing.
    """

    kernels: Any
    pad: int
    exchange: Any
    exchange_x: Any
    x_pad: int
    h: float
    threads: int = 1
    inverse_h2: float = field(init=False)

    def __post_init__(self):
        self.inverse_h2 = 1.0 / (self.h * self.h)
        top = 8.0 * self.inverse_h2  # the largest eigenvalue, of the checkerboard
        self.inverse_theta, coefficients = chebyshev(top, top / RANGE, self.pad - 1)
        self.coefficients = self.kernels.xp.asarray(coefficients)

    def apply(self, r, u, w, dots) -> None:
        """u = P(A) r, w = A u; dots[block] = (r, u), (w, u), (r, r)."""
        self.kernels.chebyshev_laplacian(
            r, self.pad, u, w, dots, self.inverse_h2, self.inverse_theta, self.coefficients, self.threads
        )

    def residual(self, b, x, r) -> None:
        """Interior of r = b - A x; fills the halo of x."""
        self.exchange_x(x)
        self.kernels.poisson_residual(b, x, self.x_pad, r, self.pad, self.inverse_h2, self.threads)


class Steps:
    """What `miniapps.linear.krylov.chronopoulos_gear` asks for, by fused kernels on padded fields.

    `dots` (3 sums) and `norm` (1 sum) are `miniapps.linear.dots.GlobalDots`. Work arrays: r padded by `operator.pad`;
    u, w, p, s `(blocks, rows, columns)`; float64. x, padded by `operator.x_pad`, is the caller's, improved in place.
    """

    def __init__(self, blocks, operator: NegativeLaplacian, dots, norm):
        self.operator, self.dots, self.norm = operator, dots, norm
        xp = operator.kernels.xp
        self.x, self._fields, self._update = None, (), operator.kernels.cg_update
        self.r = blocks.zeros(operator.pad, xp=xp)
        self.u, self.w, self.p, self.s = (blocks.zeros(xp=xp) for _ in range(4))

    def start(self, b, x) -> float:
        """|b|^2; b: float64 `(blocks, rows, columns)`, C-contiguous."""
        operator, self.x = self.operator, x
        fields = (self.u, self.w, self.p, self.s, x, operator.x_pad, self.r, operator.pad)
        self._fields = (*fields, operator.threads)
        self.norm.put(0, b, 0, b, 0)
        square = float(self.norm.total()[0])
        operator.residual(b, x, self.r)
        self.p[...] = 0.0
        self.s[...] = 0.0
        return square

    def update(self, alpha: float, beta: float) -> None:
        """p = u + beta p, s = w + beta s, x = x + alpha p, r = r - alpha s."""
        self._update(alpha, beta, *self._fields)

    def product(self) -> list[float]:
        """u = M r, w = A u; (r, u), (w, u), (r, r)."""
        operator, dots, pad = self.operator, self.dots, self.operator.pad
        operator.exchange(self.r)
        operator.apply(self.r, self.u, self.w, dots.partials)
        if dots.exact_products:
            dots.put(0, self.r, pad, self.u, 0)
            dots.put(1, self.w, 0, self.u, 0)
            dots.put(2, self.r, pad, self.r, pad)
        return dots.total().tolist()
