"""The damped Jacobi iteration."""

from math import inf, nan

import numpy as np

from miniapps.linear.krylov.base import Iteration, Method, register


@register
class Jacobi(Method):
    """x = x + omega D^-1 (b - A x), D the diagonal of A (Saad 2003, section 4.1; damped: section 13.2).

    No scalar depends on a dot product. One all-reduce, |r|^2 of the true residual, only for the stopping test. Two
    passes over vectors: x, d, r read, x written; b, q read, r written: 56 bytes per row in float64. M is not used.

    Stagnation: x has the bits of an earlier iterate, so the iteration would repeat. x is kept after 1, 2, 4, 8, ...
    iterations (Brent, BIT 20, 1980), and compared when |r|^2 has the same bits. A diverging iteration ends by "limit"
    or "not finite". Breakdown, at the start: an element of the diagonal is 0, so the sum of all 1/d^2 is infinite.
    """

    name = "jacobi"
    why = "the simplest method: shows rounding without feedback through dot products"
    reductions = 1
    goes_on_from = ("square", "kept_number", "kept_square")

    def __init__(self, system, omega: float = 1.0):
        if not 0.0 < omega < inf:
            raise ValueError(f"{self.name}: omega {omega} must be positive and finite")
        super().__init__(system)
        self.omega = omega
        self.kept, self.inverse = system.vector(), system.vector()
        diagonal = system.diagonal()
        with np.errstate(divide="ignore"):  # `run` reports a zero
            self.inverse[: len(diagonal)] = 1.0 / diagonal
        self._sizes = system.fuse(dict(d=self.inverse), "", "d.d")
        self._advance = system.fuse(dict(x=self.x, d=self.inverse, r=self.r), "x = x + omega*d*r")
        self._change = system.fuse(dict(x=self.x, k=self.kept), "k = x - k", "k.k")

    def vectors(self):
        return {"x": self.x, "r": self.r, "k": self.kept}

    def run(self, goal, begun=None):
        number, square = 0, self.square
        scalars: dict[str, float] = {}
        kept, kept_square = 0, nan  # the iteration whose x is kept
        if begun is not None:
            number, before = begun
            square, kept, kept_square = before["square"], int(before["kept_number"]), before["kept_square"]
            scalars = {"omega": self.omega}
        (sizes,) = self._sizes()
        while True:
            end = goal.met(number, square)
            here = begun is not None and number == begun[0]  # the restored state has passed the next tests
            if not end and not sizes < inf:
                reason = "breakdown" if sizes == inf else "not finite"
                end = goal.failed(number, square, reason, f"the sum of 1/d^2 over the diagonal is {sizes:g}")
            if here:
                pass
            elif not end and square == kept_square:
                if self._change() == [0.0]:
                    end = goal.failed(number, square, "stagnation", f"x is that of iteration {kept}")
                else:
                    self.kept[...] = self.x
                    kept = number
            elif number >= 2 * kept:
                self.kept[...] = self.x
                kept, kept_square = number, square
            self.left = (square, float(kept), kept_square)
            yield Iteration(number, goal.relative(square), scalars, end is not None)
            if end:
                return end
            self._advance(omega=self.omega)
            _, square = self.residual()
            number, scalars = number + 1, {"omega": self.omega}
