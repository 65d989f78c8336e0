"""What all methods share: how an iteration is told, when it ends, how it begins, and the registry.

A method sees a system, never a matrix or a communicator:

    system.vector() -> zeros                  a vector that can be multiplied
    system.apply(x, y)                        y = A x
    system.precondition(r, z)                 z = M r; not called where `system.preconditioned` is False (M = I)
    system.fuse(vectors, steps, dots) -> f    as `kernels.vectors`, with global sums: f(**scalars) -> list[float];
                                              f.start(**scalars), f.finish(): the same with the sums under way
    system.diagonal() -> vector               of A
    system.global_rows() -> int64 (m,)        the global numbers of the first m elements of a vector
    system.dtype, system.n                    n: rows of all ranks

Where the bits come from: everything but the sums is element-wise or a fixed sum per row; the scalars are computed
from the sums, on every rank alike, by Python's float64.
"""

from collections.abc import Generator
from dataclasses import dataclass
from math import frexp, inf, isnan, ldexp, nan, sqrt
from typing import Any, NamedTuple

REASONS = ("converged", "limit", "negative curvature", "breakdown", "not finite", "stagnation")
METHODS: dict[str, type["Method"]] = {}
SQUARE = 400  # the exponent of |b|^2, up to which either way it is solved as it is
FAR = 600  # a power of two by which a right side is brought to where its square is a number


class Iteration(NamedTuple):
    """One iteration, or the start (number 0)."""

    number: int
    residual: float  # |r| / |b| of the recurrence, 2-norm
    scalars: dict[str, float]  # of this iteration; none at the start
    last: bool = False  # whether the solve ends with it, as far as known before the next is begun


@dataclass(frozen=True)
class Solve:
    """How a solve ended."""

    iterations: int
    residual: float  # |r| / |b| as the method knows it at its end, 2-norm
    converged: bool
    reason: str  # one of REASONS
    detail: str = ""  # which scalar, its value and the iteration that it ended


class Goal:
    """When an iteration ends: the rules that every method obeys, decided by |r|^2, `square`.

    Not finite: |r|^2 is NaN or infinite. Converged: |r|^2 <= tolerance^2 |b|^2. Limit: so many iterations are done.
    """

    def __init__(self, norm: float, tolerance: float, limit: int):
        """norm: |b|^2, positive and finite."""
        self.target, self.limit = tolerance * tolerance * norm, limit
        self._root = sqrt(norm)

    def relative(self, square: float) -> float:
        """|r| / |b|."""
        return sqrt(square) / self._root if square >= 0.0 else nan

    def met(self, number: int, square: float) -> Solve | None:
        """How iteration `number` with this |r|^2 ends the solve, None if it goes on."""
        if self.target < square < inf and number < self.limit:
            return None
        if not 0.0 <= square < inf:
            return self.failed(number, square, "not finite", f"|r|^2 = {square:g} after iteration {number}")
        if square <= self.target:
            return Solve(number, self.relative(square), True, "converged")
        return self.failed(number, square, "limit")

    def failed(self, number: int, square: float, reason: str, detail: str = "") -> Solve:
        """The end after `number` iterations without convergence."""
        return Solve(number, self.relative(square), False, reason, detail)

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
    """Decorator: a method of METHODS, under its `name`."""
    METHODS[method.name] = method
    return method


class Method:
    """A method, planned once for a system and called many times. A subclass implements `run`.

    `x`, `r`, `b` are the method's own vectors, bound into its fused kernels: what the caller passes is copied in, and
    the solution copied out at the end.
    """

    name: str
    why: str  # one line: what it is for
    goes_on_from: tuple[str, ...] = ()  # scalars of a state, beside |b|^2; none where it cannot be continued
    symmetric = False  # asks for A = A^T, positive (and of M the same)
    reductions: float  # all-reduces per iteration

    def __init__(self, system):
        self.system = system
        self.b, self.x, self.r = system.vector(), system.vector(), system.vector()
        self._residual = system.fuse(dict(b=self.b, r=self.r), "r = b - r", "b.b r.r")
        self.square = 0.0  # |r|^2 of the start
        self.norm = 0.0  # |b|^2
        self.left: tuple[float, ...] = ()  # `goes_on_from`, of the state that was yielded last

    def iterate(
        self, b, x, tolerance: float, limit: int, begun: tuple[int, dict[str, float]] | None = None
    ) -> Generator[Iteration, None, Solve]:
        """Improve x until |r| <= tolerance |b|, at most `limit` iterations; yields every state, the start first.

        b, x: as `system.vector()`; x holds the start, and the solution when the generator has returned, whatever the
        reason. b = 0 has the answer x = 0 in no iteration. Numbers never raise: NaN and infinity end the iteration.
        Raises ValueError for a tolerance or limit that is negative or NaN.

        Where the square of |b| is far from 1, 2^s b is solved in place of b, and the states have 2^s times what they
        would have; the solution is scaled back at the end.

        `begun`: (iterations that were done, what `scalars()` gave after them); `vectors()` hold then what they did, x
        is not looked at, and the state that they left is the first that is yielded. |b|^2 must be near 1 then.
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
        """As `begin`, of b and x times 2^shift, |2^shift b| about 1: (|2^shift b|^2, shift). Collective."""
        shift = FAR if norm < 1.0 else -FAR
        norm = self.begin(_scaled(b, shift), _scaled(x, shift))
        if not 0.0 < norm < inf:  # b = 0, or one whose elements are infinite
            return norm, 0
        shift -= frexp(norm)[1] // 2
        return self.begin(_scaled(b, shift), _scaled(x, shift)), shift

    def begin(self, b, x) -> float:
        """Take b and x, make r = b - A x and `square` = |r|^2; returns |b|^2."""
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
        """Iterate from x and r until the goal says so, or go on from what `iterate` says has `begun`."""
        raise NotImplementedError

    def vectors(self) -> dict[str, Any]:
        """The vectors that an iteration goes on from; of a method that can be continued."""
        return {"x": self.x, "r": self.r}

    def scalars(self) -> dict[str, float]:
        """The scalars that an iteration goes on from."""
        return dict(zip(("norm", *self.goes_on_from), (self.norm, *self.left), strict=True))

    def solution(self):
        """The current iterate: a vector of the method, valid until it goes on."""
        return self.x

    def state(self) -> dict[str, object]:
        """The vectors that hold the state after an iteration."""
        return {"x": self.x, "r": self.r}

    def orthogonality(self) -> float | None:
        """How far what should be orthogonal is from it; None where a method keeps nothing to tell by. Collective."""
        return None


def _scaled(vector, shift: int):
    """A vector times 2^shift."""
    half = vector.dtype.type(ldexp(1.0, shift // 2))  # the whole factor could overflow
    return vector * half * vector.dtype.type(ldexp(1.0, shift - shift // 2))


def solve(method, b, x, tolerance: float, limit: int) -> Solve:
    """Run a method to its end: x is improved in place. As `Method.iterate`."""
    steps = method.iterate(b, x, tolerance, limit)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value
