"""Conjugate gradients whose sums overlap with the application of the matrix."""

from miniapps.linear.krylov.base import Iteration, Method, register
from miniapps.linear.krylov.cg import Orthogonality, first_of, refusal
from miniapps.linear.krylov.chronopoulos_gear import recurrence

STEPS = "z = n + beta*z; s = w + beta*s; p = r + beta*p; x = x + alpha*p; r = r - alpha*s; w = w - alpha*z"
PRECONDITIONED_STEPS = (
    "z = n + beta*z; q = m + beta*q; s = w + beta*s; p = u + beta*p; "
    "x = x + alpha*p; r = r - alpha*s; u = u - alpha*q; w = w - alpha*z"
)


@register
class PipelinedConjugateGradients(Method):
    """Ghysels & Vanroose, Hiding global synchronization latency in the preconditioned conjugate gradient algorithm,
    Parallel Computing 40 (2014), algorithm 4 (algorithm 3 without M).

    One all-reduce, (r, u), (w, u), (r, r), overlaps with m = M w, n = A m. One pass over vectors, with the dot
    products: it reads 10 and writes 8, 144 bytes per row in float64 (104 without M). The price of the overlap is more
    than the bytes of the classical method.

    u, w, s, q, z are recurrences for M r, A u, A p, M s, A q. Their rounding errors are amplified, so x is less
    accurate than with the classical method (Cools, Yetkin, Agullo, Giraud & Vanroose, SIAM J. Matrix Anal. Appl. 39,
    2018). Every `replace` iterations (0: never) they are computed anew, with four more products and one more
    all-reduce.

    `watch`: keep the vector for `orthogonality`.
    """

    name = "cg-pipelined"
    why = "conjugate gradients with one sum per iteration, hidden behind the product; less accurate"
    symmetric = True
    reductions = 1
    goes_on_from = ("square", "gamma", "delta", "previous", "alpha", "beta", "curvature")

    def __init__(self, system, replace: int = 50, watch: bool = False):
        if replace < 0:
            raise ValueError(f"{self.name}: replace {replace} must be at least 1, or 0 for never")
        super().__init__(system)
        self.replace = replace
        self.w, self.n, self.z, self.s, self.p = (system.vector() for _ in range(5))
        self.u, self.m, self.q = self.r, self.w, self.s  # M = I
        vectors = dict(z=self.z, n=self.n, s=self.s, w=self.w, p=self.p, x=self.x, r=self.r)
        if system.preconditioned:
            self.u, self.m, self.q = (system.vector() for _ in range(3))
            vectors |= dict(u=self.u, m=self.m, q=self.q)
            steps, dots, dotted = PRECONDITIONED_STEPS, "r.u w.u r.r", "ruw"
        else:
            steps, dots, dotted = STEPS, "r.r w.r", "rw"
        self._update = system.fuse(vectors, steps, dots)
        self._dots = system.fuse({name: vectors[name] for name in dotted}, "", dots)
        self._watch = Orthogonality(system, self.r) if watch else None

    def vectors(self):
        named = {name: getattr(self, name) for name in "xrwnzspumq"}
        own = {
            id(vector): name for name, vector in reversed(named.items())
        }  # without M some names share a vector
        return {name: named[name] for name in own.values()} | first_of(self._watch)

    def run(self, goal, begun=None):
        system = self.system
        scalars: dict[str, float] = {}
        under_way = self._dots
        if begun is None:
            if self._watch:
                self._watch.begin()
            for vector in (self.z, self.q, self.s, self.p):
                vector[...] = 0.0
            self._precondition(self.r, self.u)
            system.apply(self.u, self.w)
            number, previous, alpha = 0, None, 0.0
            under_way.start()
        else:
            number, before = begun
            square, gamma, delta, previous, alpha = (before[name] for name in self.goes_on_from[:5])
            scalars = {name: before[name] for name in ("alpha", "beta", "curvature")}
        while True:
            if begun is None or number > begun[0]:
                self._precondition(self.w, self.m)
                system.apply(self.m, self.n)
                gamma, delta, *rest = under_way.finish()
                square = rest[0] if rest else gamma
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
            number += 1
            if self.replace and number % self.replace == 0:
                self._update(alpha=alpha, beta=beta)
                self._replace()
                under_way = self._dots
                under_way.start()
            else:
                under_way = self._update
                under_way.start(alpha=alpha, beta=beta)

    def orthogonality(self) -> float | None:
        """As `Orthogonality.cosine`; None without `watch`."""
        return self._watch.cosine() if self._watch else None

    def _replace(self) -> None:
        """Compute the vectors of the recurrences directly from x and p."""
        self.residual()
        self._precondition(self.r, self.u)
        self.system.apply(self.u, self.w)
        self.system.apply(self.p, self.s)
        self._precondition(self.s, self.q)
        self.system.apply(self.q, self.z)

    def _precondition(self, r, z) -> None:
        if self.system.preconditioned:
            self.system.precondition(r, z)
