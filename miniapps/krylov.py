"""Conjugate gradients over logical blocks, one all-reduce per iteration.

Chronopoulos & Gear, s-step iterative methods for symmetric linear systems, J. Comput. Appl. Math. 25 (1989):
both dot products of an iteration are taken at the same place, so they travel together.

Where the bits come from: vector updates and the operator are element-wise or fixed per block; only the two
dot products cross blocks. With a reducer whose sums do not depend on the layout, neither does the solution.
"""

from dataclasses import dataclass
from math import inf, isfinite, sqrt

import numpy as np

from kernels import exact


@dataclass(frozen=True)
class Solve:
    """How a solve ended."""

    iterations: int
    residual: float  # |r| / |b| of the recurrence, 2-norm
    converged: bool


class ConjugateGradients:
    """Solves A x = b for a symmetric positive (semi)definite A; planned once, called many times.

    `operator.apply(r, w, dots)` computes w = A r for a padded r whose halo is filled, and the partial sums
    dots[block] = (r, r), (w, r); `operator.residual(b, x, r)` sets the interior of r to b - A x, halo of x
    included; `operator.exchange(r)` fills the halo of r. `dots` is an all-reduce of shape (2,), `norm` of
    shape (1,). If `dots` is the exact ordering and `exact_products` is set, products enter the accumulator
    with both parts, so the sums are correctly rounded from the vectors on.

    Work arrays: r `(blocks, rows + 2, columns + 2)`, w, p, s `(blocks, rows, columns)`, float64.
    """

    def __init__(
        self, blocks, operator, kernels, dots, norm, tolerance, max_iterations, exact_products=False, xp=np
    ):
        self.operator, self.kernels, self.reduce, self.norm = operator, kernels, dots, norm
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self.threads = 1
        self.r = blocks.zeros(1, xp=xp)
        self.w, self.p, self.s = (blocks.zeros(xp=xp) for _ in range(3))
        self.partials = xp.zeros((len(blocks.own), 2))
        self.norm_partials = xp.zeros((len(blocks.own), 1))
        self.words = exact.zeros((2,)) if exact_products else None

    def __call__(self, b, x, x_pad: int) -> Solve:
        """Improve x (padded by `x_pad`), in place, until |r| <= tolerance |b|.

        b: float64 `(blocks, rows, columns)`. A NaN or infinity ends the iteration, not converged.
        """
        r, w, p, s = self.r, self.w, self.p, self.s
        update, apply, exchange = self.kernels.cg_update, self.operator.apply, self.operator.exchange
        threads, partials, total = self.threads, self.partials, self._total
        target = self.tolerance**2 * self._square(b)
        if target == 0.0:  # b = 0, or too small to square
            x[...] = 0.0
            return Solve(0, 0.0, True)
        self.operator.residual(b, x, r)
        exchange(r)
        apply(r, w, partials)
        gamma, delta = total()
        p[...] = 0.0
        s[...] = 0.0
        beta, alpha, iterations = 0.0, (gamma / delta if delta > 0.0 else 0.0), 0
        while alpha > 0.0 and target < gamma < inf and iterations < self.max_iterations:
            update(alpha, beta, r, 1, w, p, s, x, x_pad, threads)
            exchange(r)
            apply(r, w, partials)
            previous = gamma
            gamma, delta = total()
            iterations += 1
            beta = gamma / previous
            curvature = delta - beta * gamma / alpha
            if not curvature > 0.0:  # also NaN
                break
            alpha = gamma / curvature
        residual = self.tolerance * sqrt(gamma / target) if isfinite(gamma) else gamma
        return Solve(iterations, residual, gamma <= target)

    def _total(self):
        if self.words is None:
            gamma, delta = self.reduce(self.partials)
        else:
            inner = np.ascontiguousarray(self.r[:, 1:-1, 1:-1])
            self.words[...] = 0
            exact.add_products(self.words[0], inner, inner)
            exact.add_products(self.words[1], self.w, inner)
            gamma, delta = self.reduce.sum_words(self.words)
        return float(gamma), float(delta)

    def _square(self, b) -> float:
        if self.words is None:
            self.kernels.block_dots(b, 0, b, 0, self.norm_partials[:, 0])
            return float(self.norm(self.norm_partials)[0])
        words = exact.zeros((1,))
        exact.add_products(words[0], b, b)
        return float(self.norm.sum_words(words)[0])
