"""The operator -laplace on blocks, for `miniapps.krylov`."""

from dataclasses import dataclass
from typing import Any

from miniapps.coupled.flow import view


@dataclass
class NegativeLaplacian:
    """A = -laplace by five points on a periodic grid: symmetric, positive but for the constant.

    `exchange` fills the halo of fields padded by 1 (the residual), `exchange_x` that of the solution, padded by
    `x_pad`; neither needs corners. `kernels`: a stencil backend.
    """

    kernels: Any
    exchange: Any
    exchange_x: Any
    x_pad: int
    h: float
    work: Any  # (blocks, by, bx)
    threads: int = 1

    def apply(self, r, w, dots) -> None:
        """w = A r for r padded by 1 with its halo filled; dots[block] = (r, r), (w, r)."""
        self.kernels.laplacian_dots(r, 1, w, dots, 1.0 / (self.h * self.h), self.threads)

    def residual(self, b, x, r, dots) -> None:
        """Interior of r = b - A x; fills the halo of x; `dots` is scratch."""
        self.exchange_x(x)
        self.kernels.laplacian_dots(x, self.x_pad, self.work, dots, 1.0 / (self.h * self.h), self.threads)
        view(r, 1)[...] = b - self.work
