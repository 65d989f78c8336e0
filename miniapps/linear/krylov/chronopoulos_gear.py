"""Conjugate gradients with one all-reduce per iteration.

Chronopoulos & Gear, s-step iterative methods for symmetric linear systems, J. Comput. Appl. Math. 25 (1989): an
iteration computes its dot products at the same place, so one message has them all. The curvature follows from a
recurrence, (p, A p) = (A u, u) - beta gamma / alpha, which lowers the attainable accuracy. At this accuracy, rounding
alone may make the curvature negative.

The method calls its work as planned steps, so that an application can provide its own fused kernels and fields. The
method itself keeps the scalars, the stopping test and the breakdown rules:

    steps.start(b, x) -> |b|^2                 r = b - A x, p = s = 0; `update` then improves steps.x
    steps.product() -> (r, u), (w, u), (r, r)  u = M r, w = A u
    steps.update(alpha, beta)                  p = u + beta p, s = w + beta s, x = x + alpha p, r = r - alpha s
    steps.x, steps.r
"""

from miniapps.linear.krylov.base import Iteration, Method, register
from miniapps.linear.krylov.cg import Orthogonality, first_of, refusal


def recurrence(gamma: float, delta: float, previous: float | None, alpha: float) -> tuple[float, float]:
    """(beta, (p, A p)) from gamma = (r, u), delta = (A u, u), and the last iteration's (r, u) (None in the first) and
    alpha."""
    if previous is None:
        return 0.0, delta
    beta = gamma / previous
    return beta, delta - beta * gamma / alpha


class FusedSteps:
    """The steps on the vectors of any system; b and x are copied in."""

    def __init__(self, system):
        self.system = system
        self.b, self.x, self.r, self.w, self.p, self.s = (system.vector() for _ in range(6))
        self.u = system.vector() if system.preconditioned else self.r
        own, u = dict(w=self.w, p=self.p, s=self.s, x=self.x, r=self.r), "r"
        if system.preconditioned:
            own["u"], u = self.u, "u"
        self._residual = system.fuse(dict(b=self.b, r=self.r), "r = b - r", "b.b")
        self.update = system.fuse(own, f"p = {u} + beta*p; s = w + beta*s; x = x + alpha*p; r = r - alpha*s")
        dotted = {name: own[name] for name in ("r", "w", u)}
        self._dots = system.fuse(dotted, "", f"r.{u} w.{u}" + (" r.r" if system.preconditioned else ""))

    def start(self, b, x) -> float:
        """As the module's docstring."""
        self.b[...] = b
        self.x[...] = x
        self.p[...] = 0.0
        self.s[...] = 0.0
        self.system.apply(self.x, self.r)
        return self._residual()[0]

    def product(self) -> list[float]:
        """As the module's docstring."""
        if not self.system.preconditioned:
            self.system.apply(self.r, self.w)
            gamma, delta = self._dots()
            return [gamma, delta, gamma]
        self.system.precondition(self.r, self.u)
        self.system.apply(self.u, self.w)
        return self._dots()


@register
class ChronopoulosGear(Method):
    """Conjugate gradients with one all-reduce: (r, M r), (A M r, M r), (r, r) together.

    Two passes over vectors: the update reads u, w, p, s, x, r and writes 4 (80 bytes per row in float64; 72
    without M, where u = r), the dot products read r, u, w (24; 16 without M).

    `system`: a system, or None together with `steps`. `watch`: keep the vector for `orthogonality`.
    """

    name = "cg-chronopoulos-gear"
    why = "conjugate gradients with one sum per iteration"
    symmetric = True
    reductions = 1
    goes_on_from = ("square", "gamma", "delta", "previous", "alpha", "beta", "curvature")

    def __init__(self, system, watch: bool = False, steps=None):
        self.steps = steps or FusedSteps(system)
        self._watch = Orthogonality(system, self.steps.r) if watch else None

    @property
    def x(self):
        return self.steps.x

    @property
    def r(self):
        return self.steps.r

    def begin(self, b, x) -> float:
        return self.steps.start(b, x)

    def run(self, goal, begun=None):
        product, update = self.steps.product, self.steps.update
        scalars: dict[str, float] = {}
        if begun is None:
            if self._watch:
                self._watch.begin()
            number, previous, alpha = 0, None, 0.0
            gamma, delta, square = product()
        else:
            number, before = begun
            square, gamma, delta, previous, alpha = (before[name] for name in self.goes_on_from[:5])
            scalars = {name: before[name] for name in ("alpha", "beta", "curvature")}
        while True:
            end = goal.met(number, square)
            self.left = (square, gamma, delta, previous or 0.0, *(scalars.values() or (0.0, 0.0, 0.0)))
            yield Iteration(number, goal.relative(square), scalars, end is not None)
            if end:
                return end
            beta, curvature = recurrence(gamma, delta, previous, alpha)
            if end := refusal(goal, number, square, gamma, curvature):
                return end
            alpha, previous = gamma / curvature, gamma
            scalars = {"alpha": alpha, "beta": beta, "curvature": curvature}
            update(alpha=alpha, beta=beta)
            gamma, delta, square = product()
            number += 1

    @property
    def b(self):
        return self.steps.b

    def vectors(self):
        steps = self.steps
        own = {"x": steps.x, "r": steps.r, "w": steps.w, "p": steps.p, "s": steps.s}
        return own | ({} if steps.u is steps.r else {"u": steps.u}) | first_of(self._watch)

    def orthogonality(self) -> float | None:
        """As `Orthogonality.cosine`; None without `watch`."""
        return self._watch.cosine() if self._watch else None
