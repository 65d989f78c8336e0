"""Preconditioned conjugate gradients over logical blocks, one all-reduce per iteration.

Chronopoulos & Gear, s-step iterative methods for symmetric linear systems, J. Comput. Appl. Math. 25 (1989):
the dot products of an iteration are taken at the same place, so they travel together.

Where the bits come from: vector updates and the operator are element-wise or fixed per block; only the
dot products cross blocks. With a reducer whose sums do not depend on the layout, neither does the solution.
"""

from dataclasses import dataclass
from math import inf, sqrt


@dataclass(frozen=True)
class Solve:
    """How a solve ended."""

    iterations: int
    residual: float  # |r| / |b| of the recurrence, 2-norm
    converged: bool


class ConjugateGradients:
    """Solves A x = b for a symmetric positive (semi)definite A; planned once, called many times.

    `operator.apply(r, u, w, dots)` computes u = M r with the preconditioner M, w = A u, and the partial sums
    dots[block] = (r, u), (w, u), (r, r), for a padded r whose halo is filled; `operator.exchange(r)` fills it;
    `operator.residual(b, x, r)` sets the interior of r to b - A x and fills the halo of x. `dots` (3 sums) and
    `norm` (1 sum) are `miniapps.dots.GlobalDots`. `kernels`: a stencil backend.

    Work arrays: r padded by `operator.pad`; u, w, p, s `(blocks, rows, columns)`; float64.
    """

    def __init__(self, blocks, operator, kernels, dots, norm, tolerance, max_iterations, threads=1):
        self.operator, self.kernels, self.dots, self.norm = operator, kernels, dots, norm
        self.tolerance, self.max_iterations, self.threads = tolerance, max_iterations, threads
        self.r = blocks.zeros(operator.pad, xp=kernels.xp)
        self.u, self.w, self.p, self.s = (blocks.zeros(xp=kernels.xp) for _ in range(4))

    def __call__(self, b, x, x_pad: int) -> Solve:
        """Improve x (padded by `x_pad`), in place, until |r| <= tolerance |b|.

        b: float64 `(blocks, rows, columns)`. A NaN or infinity ends the iteration, not converged.
        """
        r, u, w, p, s = self.r, self.u, self.w, self.p, self.s
        update, apply, exchange = self.kernels.cg_update, self.operator.apply, self.operator.exchange
        threads, partials, total, pad = self.threads, self.dots.partials, self._total, self.operator.pad
        self.norm.put(0, b, 0, b, 0)
        target = self.tolerance**2 * float(self.norm.total()[0])
        if target == 0.0:  # b = 0, or too small to square
            x[...] = 0.0
            return Solve(0, 0.0, True)
        self.operator.residual(b, x, r)
        exchange(r)
        apply(r, u, w, partials)
        gamma, delta, square = total()
        p[...] = 0.0
        s[...] = 0.0
        beta, alpha, iterations = 0.0, (gamma / delta if delta > 0.0 else 0.0), 0
        while alpha > 0.0 and target < square < inf and iterations < self.max_iterations:
            update(alpha, beta, u, w, p, s, x, x_pad, r, pad, threads)
            exchange(r)
            apply(r, u, w, partials)
            previous = gamma
            gamma, delta, square = total()
            iterations += 1
            beta = gamma / previous
            curvature = delta - beta * gamma / alpha
            if not curvature > 0.0:  # also NaN
                break
            alpha = gamma / curvature
        residual = self.tolerance * sqrt(square / target) if 0.0 <= square < inf else square
        return Solve(iterations, residual, square <= target)

    def _total(self) -> list[float]:
        dots, pad = self.dots, self.operator.pad
        if dots.exact_products:
            dots.put(0, self.r, pad, self.u, 0)
            dots.put(1, self.w, 0, self.u, 0)
            dots.put(2, self.r, pad, self.r, pad)
        return dots.total().tolist()
