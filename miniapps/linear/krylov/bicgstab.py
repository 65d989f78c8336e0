"""BiCGStab: for matrices that are not symmetric, with short recurrences."""

from dataclasses import replace

from miniapps.linear.krylov.base import Iteration, Method, register


@register
class BiCGStab(Method):
    """van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992), preconditioned from the right (Saad 2003, alg. 7.7).

    Three all-reduces: (r0, v) with v = A M p; then (t, s), (t, t), (s, s) with s = r - alpha v, t = A M s; then
    (r, r), (r0, r). Two products and two applications of M. Five passes over vectors: 144 bytes per row in float64, 152
    with M.

    Breakdowns, reported with their scalar: (r0, v) = 0, (t, t) = 0, omega = (t, s) / (t, t) = 0, rho = (r0, r) = 0. If
    (t, t) = 0 or omega = 0, or if s meets the goal, the iteration ends with its first half, x = x + alpha M p and
    r = s. Scalars: alpha, beta, rho and, in a whole iteration, omega.
    """

    name = "bicgstab"
    why = "needs no symmetry, short recurrences; its residual is not smooth"
    reductions = 3
    goes_on_from = ("square", "next_rho", "alpha", "beta", "rho", "omega")

    def __init__(self, system):
        super().__init__(system)
        x, r = self.x, self.r
        self.first, self.p, self.v, self.t = first, p, v, t = [system.vector() for _ in range(4)]
        self.p_hat, self.s_hat = p, r  # M = I; s is kept in r
        if system.preconditioned:
            self.p_hat, self.s_hat = system.vector(), system.vector()
        hats = dict(p=self.p_hat, s=self.s_hat)
        self._shadow = system.fuse(dict(first=first, v=v), "", "first.v")
        self._halve = system.fuse(dict(r=r, v=v), "r = r - alpha*v")
        self._stabilise = system.fuse(dict(t=t, r=r), "", "t.r t.t r.r")
        self._advance = system.fuse(
            dict(x=x, r=r, t=t, first=first) | hats,
            "x = x + alpha*p + omega*s; r = r - omega*t",
            "r.r first.r",
        )
        self._advance_half = system.fuse(dict(x=x, p=self.p_hat), "x = x + alpha*p")
        self._turn = system.fuse(dict(p=p, v=v, r=r), "p = p - omega*v; p = r + beta*p")

    def vectors(self):
        return {"x": self.x, "r": self.r, "first": self.first, "p": self.p, "v": self.v}

    def run(self, goal, begun=None):
        beta = 0.0
        scalars: dict[str, float] = {}
        if begun is None:
            self.first[...] = self.r
            self.p[...] = self.r
            number, square, rho = 0, self.square, self.square
        else:
            number, before = begun
            square, rho = before["square"], before["next_rho"]
            scalars = {name: before[name] for name in ("alpha", "beta", "rho", "omega")}
        while True:
            end = goal.met(number, square) or goal.zero(number, square, "rho", rho)
            self.left = (square, rho, *(scalars.values() or (0.0, 0.0, 0.0, 0.0)))
            yield Iteration(number, goal.relative(square), scalars, end is not None)
            if end:
                return end
            if number:
                beta = (rho / scalars["rho"]) * (scalars["alpha"] / scalars["omega"])
                self._turn(omega=scalars["omega"], beta=beta)
            self._product(self.p, self.p_hat, self.v)
            (shadow,) = self._shadow()
            if end := goal.zero(number, square, "(r0, v)", shadow):
                return end
            alpha = rho / shadow
            scalars = {"alpha": alpha, "beta": beta, "rho": rho}
            self._halve(alpha=alpha)
            self._product(self.r, self.s_hat, self.t)
            across, along, square = self._stabilise()
            omega = across / along if along else 0.0
            end = goal.zero(number, square, "(t, t)", along) or goal.zero(number, square, "omega", omega)
            number += 1
            if end or square <= goal.target:
                self._advance_half(alpha=alpha)
                self.left = (square, rho, *scalars.values(), 0.0)  # the end, which has no continuation
                yield Iteration(number, goal.relative(square), scalars, True)
                return goal.met(number, square) if square <= goal.target else replace(end, iterations=number)
            scalars["omega"] = omega
            square, rho = self._advance(alpha=alpha, omega=omega)

    def _product(self, p, hat, v) -> None:
        """hat = M p, v = A hat."""
        if self.system.preconditioned:
            self.system.precondition(p, hat)
        self.system.apply(hat, v)
