"""The operator -laplace on blocks and its polynomial preconditioner, for `miniapps.krylov`."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

DEGREE = 7  # of the preconditioner, where blocks are wide enough: it and the operator read DEGREE + 1 points around
RANGE = 300.0  # the preconditioner damps the spectrum between its top and a RANGE-th of it; the rest is left to CG


def chebyshev(top: float, bottom: float, degree: int) -> tuple[float, np.ndarray]:
    """(1 / theta, coefficients (degree, 2)) of Chebyshev's semi-iteration for a spectrum in [bottom, top].

    Saad, Iterative Methods for Sparse Linear Systems (2003), algorithm 12.1.
    """
    theta, delta = 0.5 * (top + bottom), 0.5 * (top - bottom)
    sigma = theta / delta
    rho, rows = 1.0 / sigma, []
    for _ in range(degree):
        rho_next = 1.0 / (2.0 * sigma - rho)
        rows.append((rho_next * rho, 2.0 * rho_next / delta))
        rho = rho_next
    return 1.0 / theta, np.array(rows).reshape(-1, 2)


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
