"""Conjugate gradients: the classical method, and the common part of the family.

The family's scalars of iteration k are `alpha`, `beta` and `curvature` of
p = M r + beta p, x += alpha p, curvature = (p, A p). The residual of the recurrence keeps shrinking after b - A x has
stopped (Greenbaum, SIAM J. Matrix Anal. Appl. 18, 1997), so the family cannot detect stagnation.
"""

from math import inf, sqrt
from typing import Any

from miniapps.linear.krylov.base import Goal, Iteration, Method, Solve, register


def refusal(goal: Goal, number: int, square: float, gamma: float, curvature: float) -> Solve | None:
    """The end, if (r, M r) = gamma or (p, A p) = curvature allow no further step; None if they do.

    Curvature <= 0: A is not positive definite. gamma <= 0 with r not 0: M is not. A quotient alpha = gamma / curvature
    that underflows or overflows is a breakdown too.
    """
    if 0.0 < gamma < inf and 0.0 < curvature < inf and 0.0 < gamma / curvature < inf:
        return None
    return (
        goal.not_positive(number, square, "breakdown", "(r, M r)", gamma)
        or goal.not_positive(number, square, "negative curvature", "(p, A p)", curvature)
        or goal.not_positive(number, square, "breakdown", "alpha", gamma / curvature)
    )


def first_of(watch: "Orthogonality | None") -> dict[str, Any]:
    """The additional vector of a state whose orthogonality is watched."""
    return {} if watch is None else {"first": watch.first}


class Orthogonality:
    """Measures the orthogonality of residuals: the cosine of r_k and M r_0, 0 in exact arithmetic for k > 0."""

    def __init__(self, system, r):
        self.system, self.r, self.first = system, r, system.vector()
        self._dots = system.fuse(dict(r=r, first=self.first), "", "r.first r.r first.first")

    def begin(self) -> None:
        """Store M r_0."""
        if self.system.preconditioned:
            self.system.precondition(self.r, self.first)
        else:
            self.first[...] = self.r

    def cosine(self) -> float:
        """|(r, M r_0)| / (|r| |M r_0|); 0 if one of them is 0. One all-reduce."""
        product, r, first = self._dots()
        scale = sqrt(r) * sqrt(first)
        return abs(product) / scale if scale else 0.0


@register
class ConjugateGradients(Method):
    """Hestenes & Stiefel, J. Res. Nat. Bur. Standards 49 (1952), section 3, preconditioned (Saad 2003, alg. 9.1).

    Two all-reduces: (p, A p); then (r, M r) with (r, r). Three passes over vectors, since x is updated together with p,
    before p changes: (p, q) reads 2; r = r - alpha q reads 2, writes 1; x and p read 3, write 2: 80 bytes per row in
    float64 beside the product; 16 more with M (whose own bytes are extra).

    `watch`: keep the vector for `orthogonality`.
    """

    name = "cg"
    why = "classical conjugate gradients: two sums per iteration, one after the other"
    symmetric = True
    reductions = 2
    goes_on_from = ("square", "gamma", "alpha", "beta", "curvature", "next_beta")

    def __init__(self, system, watch: bool = False):
        super().__init__(system)
        x, r = self.x, self.r
        self.p, self.q = p, q = system.vector(), system.vector()
        self.z = system.vector() if system.preconditioned else r
        vectors, z = dict(x=x, r=r, p=p, q=q), "r"
        if system.preconditioned:
            z = "z"
            self._reduced = system.fuse(dict(r=r, q=q), "r = r - alpha*q")
            self._products = system.fuse(dict(r=r, z=self.z), "", "r.z r.r")
            vectors["z"] = self.z
        else:
            self._reduced = system.fuse(dict(r=r, q=q), "r = r - alpha*q", "r.r")
        self._curvature = system.fuse(dict(p=p, q=q), "", "p.q")
        del vectors["q"]
        self._advance = system.fuse(vectors, f"x = x + alpha*p; p = {z} + beta*p")
        self._watch = Orthogonality(system, r) if watch else None

    def run(self, goal, begun=None):
        system, p, q = self.system, self.p, self.q
        scalars: dict[str, float] = {}
        if begun is None:
            if self._watch:
                self._watch.begin()
            p[...] = 0.0
            number, square, gamma = 0, self.square, self.square
            if system.preconditioned:
                gamma, square = self._precondition()
            beta = 0.0
            self._advance(alpha=0.0, beta=0.0)
        else:
            number, before = begun
            square, gamma, beta = before["square"], before["gamma"], before["next_beta"]
            scalars = {name: before[name] for name in ("alpha", "beta", "curvature")}
        while True:
            end = goal.met(number, square)
            self.left = (square, gamma, *(scalars.values() or (0.0, 0.0, 0.0)), beta)
            yield Iteration(number, goal.relative(square), scalars, end is not None)
            if end:
                return end
            system.apply(p, q)
            (curvature,) = self._curvature()
            if end := refusal(goal, number, square, gamma, curvature):
                return end
            alpha, previous = gamma / curvature, gamma
            scalars = {"alpha": alpha, "beta": beta, "curvature": curvature}
            sums = self._reduced(alpha=alpha)
            gamma, square = self._precondition() if system.preconditioned else (sums[0], sums[0])
            beta = gamma / previous
            self._advance(alpha=alpha, beta=beta)
            number += 1

    def vectors(self):
        return {"x": self.x, "r": self.r, "p": self.p} | first_of(self._watch)

    def orthogonality(self) -> float | None:
        """As `Orthogonality.cosine`; None without `watch`."""
        return self._watch.cosine() if self._watch else None

    def _precondition(self) -> list[float]:
        """z = M r; returns (r, z), (r, r)."""
        self.system.precondition(self.r, self.z)
        return self._products()
