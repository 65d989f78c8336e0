"""The steps of conjugate gradients for -laplace(psi) = -zeta on blocks, preconditioned by a V-cycle."""


class Steps:
    """The steps of `miniapps.linear.krylov.chronopoulos_gear` by fused kernels on padded fields.

    `fine`: the finest `miniapps.coupled.multigrid.Level`, which holds r, u and w = A u; `fill_x`: the exchange of the
    faces of x, padded by `x_pad`; `dots` (3 sums) and `norm` (1 sum): `miniapps.linear.dots.GlobalDots`. p, s: float64
    `(blocks, rows, columns)`. x is the caller's, improved in place.
    """

    def __init__(self, blocks, kernels, fine, fill_x, x_pad: int, dots, norm):
        self.dots, self.norm = dots, norm
        self._kernels, self._fine, self._fill_x, self._x_pad = kernels, fine, fill_x, x_pad
        self.x, self._update = None, kernels.cg_update
        self._fields: tuple = ()
        self.r, self.u, self.w = fine.r, fine.u, fine.w
        self.p, self.s = (blocks.zeros(xp=kernels.xp) for _ in range(2))
        fine.dots = dots.partials

    def start(self, b, x) -> float:
        """|b|^2; b: float64 `(blocks, rows, columns)`, C-contiguous. Fills the halo of x."""
        fine, self.x = self._fine, x
        r = (self.r, fine.pad)
        self._fields = (self.u, self.w, self.p, self.s, x, self._x_pad, *r, fine.threads)
        self.norm.put(0, b, 0, b, 0)
        square = float(self.norm.total()[0])
        self._fill_x(x)
        self._kernels.poisson_residual(b, x, self._x_pad, *r, fine.inverse_h2, fine.threads)
        self.p[...] = 0.0
        self.s[...] = 0.0
        return square

    def update(self, alpha: float, beta: float) -> None:
        """p = u + beta p, s = w + beta s, x = x + alpha p, r = r - alpha s."""
        self._update(alpha, beta, *self._fields)

    def product(self) -> list[float]:
        """u = M r, w = A u; (r, u), (w, u), (r, r)."""
        dots, pad = self.dots, self._fine.pad
        self._fine.cycle()
        if dots.exact_products:
            dots.put(0, self.r, pad, self.u, 0)
            dots.put(1, self.w, 0, self.u, 0)
            dots.put(2, self.r, pad, self.r, pad)
        return dots.total().tolist()
