"""Iterative refinement: corrections in float32, residuals in float64."""

from math import sqrt

from miniapps.linear.krylov.base import METHODS, Iteration, Method, register, solve


@register
class Refinement(Method):
    """x = x + |r| d with A d = r / |r| solved by another method in a system of less precision, r = b - A x in this one.

    Higham, Accuracy and Stability of Numerical Algorithms (2002), chapter 12; with an iterative inner solver: Carson &
    Higham, SIAM J. Sci. Comput. 40 (2018). r is scaled so that the smallest residuals stay in the range of float32.

    Iterations are outer ones: one all-reduce (beside the inner ones), one product in this system. Scalars: `inner`, the
    number of inner iterations, and `inner_residual`, the inner method's final residual.

    `system32`: the same matrix, usually in float32; `inner`: a name of METHODS; `inner_tolerance`, `inner_limit`: of an
    inner solve; all other options are those of the inner method.

    Stagnation: an outer iteration does not reduce |r|, so its correction is useless. An inner solve that ends by
    "negative curvature", "breakdown" or "not finite" ends the whole solve with this reason.
    """

    name = "refinement"
    why = "float32 inside, float64 outside: half the bytes for the accuracy of float64"
    reductions = 1

    def __init__(
        self,
        system,
        system32=None,
        inner: str = "cg",
        inner_tolerance: float = 1e-4,
        inner_limit: int = 1000,
        **options,
    ):
        if system32 is None:
            raise ValueError(f"{self.name}: give system32, the system of the inner method")
        if inner not in METHODS or inner == self.name:
            known = ", ".join(name for name in METHODS if name != self.name)
            raise ValueError(f"{self.name}: unknown inner method {inner!r}; there are: {known}")
        if not (0.0 < inner_tolerance < 1.0 and inner_limit >= 1):
            raise ValueError(
                f"{self.name}: inner_tolerance {inner_tolerance} must be in (0, 1) and inner_limit {inner_limit} "
                "at least 1"
            )
        super().__init__(system)
        self.inner = METHODS[inner](system32, **options)
        self.symmetric = self.inner.symmetric
        self.inner_tolerance, self.inner_limit = inner_tolerance, inner_limit
        self.inner_b, self.inner_x, self.d = system32.vector(), system32.vector(), system.vector()
        self._scaled = system.fuse(dict(d=self.d, r=self.r), "d = c*r")
        self._correct = system.fuse(dict(d=self.d, x=self.x), "x = x + c*d")

    def run(self, goal, begun=None):
        number, square = 0, self.square
        scalars: dict[str, float] = {}
        end = goal.met(number, square)
        while True:
            yield Iteration(number, goal.relative(square), scalars)
            if end:
                return end
            norm = sqrt(square)
            self._scaled(c=1.0 / norm)
            self.inner_b[...] = self.d
            self.inner_x[...] = 0.0
            inner = solve(self.inner, self.inner_b, self.inner_x, self.inner_tolerance, self.inner_limit)
            if inner.reason in ("negative curvature", "breakdown", "not finite"):
                detail = f"{self.inner.name} in outer iteration {number + 1}: {inner.detail}"
                return goal.failed(number, square, inner.reason, detail)
            self.d[...] = self.inner_x
            self._correct(c=norm)
            before = square
            _, square = self.residual()
            number += 1
            scalars = {"inner": inner.iterations, "inner_residual": inner.residual}
            end = goal.met(number, square)
            if not end and not square < before:
                end = goal.failed(
                    number, square, "stagnation", f"|r| is not smaller after iteration {number}"
                )
