"""The common part of all methods: states of an iteration, its start and end, and the registry.

A method uses only a system, not a matrix or communicator:

    system.vector() -> zeros                  a vector that can be multiplied
    system.apply(x, y)                        y = A x
    system.precondition(r, z)                 z = M r; not called where `system.preconditioned` is False (M = I)
    system.fuse(vectors, steps, dots) -> f    as `kernels.vectors`, with global sums: f(**scalars) -> list[float];
                                              f.start(**scalars), f.finish(): the same without blocking
    system.diagonal() -> vector               of A
    system.global_rows() -> int64 (m,)        the global numbers of the first m elements of a vector
    system.dtype, system.n                    n: rows of all ranks

Apart from the global sums, all operations are element-wise or a fixed sum per row. Every rank computes the same scalars
from the sums, in Python's float64.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from math import frexp, inf, isnan, ldexp, nan, sqrt
from typing import Any, NamedTuple

REASONS = ("converged", "limit", "negative curvature", "breakdown", "not finite", "stagnation")
METHODS: dict[str, type["Method"]] = {}
SQUARE = 400  # |b|^2 with an exponent up to this one, either way, needs no scaling
FAR = 600  # a power of two that scales a right side so that its square is finite and positive


class Iteration(NamedTuple):
    """One iteration, or the start (number 0)."""

    number: int
    residual: float  # |r| / |b| of the recurrence, 2-norm
    scalars: dict[str, float]  # of this iteration; none at the start
    last: bool = False  # whether the solve ends here, if known before the next iteration


@dataclass(frozen=True)
class Solve:
    """The result of a solve."""

    iterations: int
    residual: float  # |r| / |b| as the method knows it at its end, 2-norm
    converged: bool
    reason: str  # one of REASONS
    detail: str = ""  # the scalar that ended the solve, its value and iteration
    before: float = field(default=nan, compare=False)  # the residual that the method knew before the last one

    def margin(self, tolerance: float) -> float:
        """How far the solve was from ending an iteration earlier or later: the distance of the last residual from the
        tolerance, or of that before it if that is less, relative to the larger of both; NaN for a solve that something
        else ended, and for residuals that are not finite."""
        if self.reason not in ("converged", "limit"):
            return nan
        found = [
            abs(residual - tolerance) / max(residual, tolerance)
            for residual in (self.residual, self.before)
            if 0.0 < max(residual, tolerance) < inf and residual >= 0.0
        ]
        return min(found, default=nan)


class Goal:
    """The rules by which every method ends, from `square` = |r|^2.

    Not finite: |r|^2 is NaN or infinite. Converged: |r|^2 <= tolerance^2 |b|^2. Limit: `limit` iterations are done.
    """

    def __init__(self, norm: float, tolerance: float, limit: int):
        """norm: |b|^2, positive and finite."""
        self.target, self.limit = tolerance * tolerance * norm, limit
        self._root = sqrt(norm)
        self._before = nan  # the residual of the iteration before

    def relative(self, square: float) -> float:
        """|r| / |b|."""
        return sqrt(square) / self._root if square >= 0.0 else nan

    def met(self, number: int, square: float) -> Solve | None:
        """The end of the solve at iteration `number` with this |r|^2; None if it continues."""
        if self.target < square < inf and number < self.limit:
            self._before = self.relative(square)
            return None
        if not 0.0 <= square < inf:
            return self.failed(number, square, "not finite", f"|r|^2 = {square:g} after iteration {number}")
        if square <= self.target:
            return Solve(number, self.relative(square), True, "converged", before=self._before)
        return self.failed(number, square, "limit")

    def failed(self, number: int, square: float, reason: str, detail: str = "") -> Solve:
        """The end after `number` iterations without convergence."""
        return Solve(number, self.relative(square), False, reason, detail, self._before)

    def not_positive(self, number: int, square: float, reason: str, name: str, value: float) -> Solve | None:
        """None for a positive, finite scalar; else the end: `reason` for a number, "not finite" otherwise."""
        if 0.0 < value < inf:
            return None
        return self._bad(number, square, reason, name, value)

    def zero(self, number: int, square: float, name: str, value: float) -> Solve | None:
        """None for a finite scalar other than 0; else the end: "breakdown" for 0, "not finite" otherwise."""
        if value != 0.0 and -inf < value < inf:
            return None
        return self._bad(number, square, "breakdown", name, value)

    def _bad(self, number: int, square: float, reason: str, name: str, value: float) -> Solve:
        reason = "not finite" if isnan(value) or abs(value) == inf else reason
        return self.failed(number, square, reason, f"{name} = {value:g} in iteration {number + 1}")


def register(method: type["Method"]) -> type["Method"]:
    """Decorator: registers a method in METHODS by its `name`."""
    METHODS[method.name] = method
    return method


class Method:
    """A method, planned once for a system and called many times. A subclass implements `run`.

    `x`, `r`, `b` are the method's own vectors, bound to its fused kernels. It copies the caller's vectors in, and the
    solution out at the end.
    """

    name: str
    why: str  # its purpose in one line
    goes_on_from: tuple[
        str, ...
    ] = ()  # scalars of a state beside |b|^2; empty if the method cannot continue one
    symmetric = False  # needs A and M symmetric and positive
    reductions: float  # all-reduces per iteration

    def __init__(self, system):
        self.system = system
        self.b, self.x, self.r = system.vector(), system.vector(), system.vector()
        self._residual = system.fuse(dict(b=self.b, r=self.r), "r = b - r", "b.b r.r")
        self.square = 0.0  # |r|^2 of the start
        self.norm = 0.0  # |b|^2
        self.left: tuple[float, ...] = ()  # values of `goes_on_from` in the last yielded state

    def iterate(
        self, b, x, tolerance: float, limit: int, begun: tuple[int, dict[str, float]] | None = None
    ) -> Generator[Iteration, None, Solve]:
        """Improves x until |r| <= tolerance |b|, at most `limit` iterations; yields every state, the start first.

        b, x: as `system.vector()`; x holds the start, and the last iterate after any end. b = 0 gives x = 0 without an
        iteration. NaN and infinity end the iteration and raise nothing. Raises ValueError for a tolerance or limit that
        is negative or NaN.

        If |b|^2 is far from 1, the method solves for 2^s b instead; the states are scaled by 2^s, and the solution is
        scaled back at the end.

        `begun`: (number of finished iterations, `scalars()` after them), to continue a solve whose `vectors()` are
        restored; x is then ignored, and the restored state is yielded first. |b|^2 must be near 1.
        """
        if not (tolerance >= 0.0 and limit >= 0):
            raise ValueError(f"{self.name}: tolerance {tolerance} and limit {limit} must be at least 0")
        if begun is not None:
            self.b[...] = b
            self.norm = begun[1]["norm"]
            solve = yield from self.run(Goal(self.norm, tolerance, limit), begun)
            x[...] = self.x
            return solve
        norm, shift = self.begin(b, x), 0
        if norm < 2.0**-SQUARE or norm > 2.0**SQUARE:
            norm, shift = self._begin_scaled(b, x, norm)
        self.norm = norm
        if norm == 0.0:
            self.x[...] = 0.0
            self.r[...] = 0.0
            yield Iteration(0, 0.0, {})
            solve = Solve(0, 0.0, True, "converged")
        elif not norm < inf:
            yield Iteration(0, nan, {})
            solve = Solve(0, nan, False, "not finite", f"|b|^2 = {norm:g}")
        else:
            solve = yield from self.run(Goal(norm, tolerance, limit))
        if shift:
            self.x[...] = _scaled(self.x, -shift)
        if x is not self.x:
            x[...] = self.x
        return solve

    def _begin_scaled(self, b, x, norm: float) -> tuple[float, int]:
        """`begin` with b and x times 2^shift, |2^shift b| about 1; returns (|2^shift b|^2, shift). Collective."""
        shift = FAR if norm < 1.0 else -FAR
        norm = self.begin(_scaled(b, shift), _scaled(x, shift))
        if not 0.0 < norm < inf:  # b is 0 or has infinite elements
            return norm, 0
        shift -= frexp(norm)[1] // 2
        return self.begin(_scaled(b, shift), _scaled(x, shift)), shift

    def begin(self, b, x) -> float:
        """Copy b and x, compute r = b - A x and `square` = |r|^2; returns |b|^2."""
        self.b[...] = b
        self.x[...] = x
        norm, self.square = self.residual()
        return norm

    def residual(self) -> list[float]:
        """r = b - A x; returns |b|^2, |r|^2."""
        self.system.apply(self.x, self.r)
        return self._residual()

    def run(
        self, goal: Goal, begun: tuple[int, dict[str, float]] | None = None
    ) -> Generator[Iteration, None, Solve]:
        """Iterate from x and r, or from the state `begun`, until the goal is met."""
        raise NotImplementedError

    def vectors(self) -> dict[str, Any]:
        """The vectors of a state, from which a method that can continue does so."""
        return {"x": self.x, "r": self.r}

    def scalars(self) -> dict[str, float]:
        """The scalars of a state, for its continuation."""
        return dict(zip(("norm", *self.goes_on_from), (self.norm, *self.left), strict=True))

    def solution(self):
        """The current iterate: a vector of the method, valid until the next iteration."""
        return self.x

    def state(self) -> dict[str, object]:
        """The vectors that hold the state after an iteration."""
        return {"x": self.x, "r": self.r}

    def orthogonality(self) -> float | None:
        """The deviation from orthogonality; None if the method keeps no vectors to measure it. Collective."""
        return None


def _scaled(vector, shift: int):
    """A vector times 2^shift."""
    half = vector.dtype.type(ldexp(1.0, shift // 2))  # the whole factor could overflow
    return vector * half * vector.dtype.type(ldexp(1.0, shift - shift // 2))


def solve(method, b, x, tolerance: float, limit: int) -> Solve:
    """Runs `Method.iterate` to its end; improves x in place."""
    steps = method.iterate(b, x, tolerance, limit)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
