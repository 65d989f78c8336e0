"""Chebyshev iteration with D^-1 A: the polynomial preconditioner, and the smoother of multigrid.

With r = b - A x and d_0 = s_0 D^-1 r: x += d_k, r -= A d_k, d_k+1 = p_k+1 d_k + s_k+1 D^-1 r. Among all polynomials of
its degree, that of the error has the least maximum over [upper / ratio, upper] (Saad, Iterative Methods for Sparse
Linear Systems, 2003, algorithm 12.1; as a smoother: Adams, Brezina, Hu & Tuminaro 2003). It is symmetric, and positive
if `upper` is at least the largest eigenvalue of D^-1 A.
"""

from itertools import islice

import numpy as np

from kernels.vectors import backend as vectors_backend
from miniapps.linear.krylov.chebyshev import semi_iteration
from miniapps.linear.preconditioners.errors import PreconditionerError
from miniapps.linear.preconditioners.plans import Plans


def coefficients(upper: float, ratio: float, degree: int) -> list[dict[str, float]]:
    """[{"p": p_k, "s": s_k}] for k = 0 ... degree - 1. Raises PreconditionerError for impossible ones."""
    if degree < 1:
        raise PreconditionerError(f"degree = {degree}: a polynomial needs at least degree 1")
    if not 1.0 < ratio < np.inf:
        raise PreconditionerError(f"ratio = {ratio}: the ends of the interval have a finite ratio above 1")
    first, factors = semi_iteration(upper / ratio, upper)
    return [{"p": p, "s": s} for p, s in ((0.0, first), *islice(factors, degree - 1))]


class Polynomial:
    """x = p(A) b from x = 0, and the same polynomial as a correction of x.

    `inverse`: of the diagonal, (m,). `d` (an operand of `matrix`) holds directions, `q` (at least m elements, made here
    unless given) the residual. `smooth` needs degree - 1 products, `residual` one, `correct` degree products.
    """

    def __init__(self, matrix, inverse, upper, degree, ratio, threads=1, backend="native", q=None):
        self._matrix, self._scalars = matrix, coefficients(upper, ratio, degree)
        self.d, self._w = matrix.operand(), matrix.result()
        self.q = matrix.result() if q is None else q
        own = {"D": inverse, "d": self.d, "q": self.q, "w": self._w}
        fuse, starts = vectors_backend(backend).fuse, matrix.rows.local_starts
        again = "q = q - w; d = p*d + s*D*q; x = x + d"
        first = "d = s*D*b"
        last = "q = q - w"
        if degree == 1:
            first, last = "d = s*D*b; x = d", "q = b - w"
        smooth = [first, "q = b - w; x = d; d = p*d + s*D*q; x = x + d"][:degree] + [again] * (degree - 2)
        correct = ["x = x + d; q = q - w; d = s*D*q; x = x + d"] + [again] * (degree - 1)

        def plan(b, x):
            bound = {**own, "b": b, "x": x}

            def passes(all_steps):
                fused = [fuse(bound, steps, starts=starts, threads=threads) for steps in all_steps]
                return [
                    (f, {name: k[name] for name in f.scalars})
                    for f, k in zip(fused, self._scalars[: len(fused)], strict=True)
                ]

            return passes(smooth), passes([last])[0], passes(correct)

        self._plans = Plans(plan)
        self._counted = plan(matrix.xp.empty_like(self._w), matrix.xp.empty_like(self._w))

    def smooth(self, b, x) -> None:
        """x = p(A) b."""
        (fused, scalars), *others = self._plans(b, x)[0]
        fused(**scalars)
        for fused, scalars in others:
            self._matrix.apply(self.d, self._w)
            fused(**scalars)

    def residual(self, b, x) -> None:
        """q = b - A x, after `smooth`."""
        self._matrix.apply(self.d, self._w)
        self._plans(b, x)[1][0]()

    def correct(self, b, x) -> None:
        """x = x + d, then x = x + p(A) (b - A x); after `residual`, with a correction in d."""
        for fused, scalars in self._plans(b, x)[2]:
            self._matrix.apply(self.d, self._w)
            fused(**scalars)

    def count(self, what: str, whole: bool) -> int:
        """The attribute `what`, `flops` or `nbytes`, of `smooth`; with `whole` also of `residual` and `correct`."""
        smooth, last, correct = self._counted
        fused = [*smooth, last, *correct] if whole else smooth
        return (len(fused) - 1) * getattr(self._matrix, what) + sum(getattr(f, what) for f, _ in fused)
