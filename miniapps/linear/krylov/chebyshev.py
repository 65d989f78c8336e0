"""Chebyshev's semi-iteration, and the bounds of the spectrum that it needs."""

from collections.abc import Iterator

import numpy as np

from miniapps.linear.krylov.base import Iteration, Method, Solve, register
from miniapps.linear.krylov.cg import ConjugateGradients
from miniapps.system.device import put

# Ritz values are inside the spectrum. Above its upper end the iteration diverges, below its lower end it only damps
# less, so the upper bound gets a larger margin.
ABOVE, BELOW = 1.1, 0.95


def semi_iteration(lower: float, upper: float) -> tuple[float, Iterator[tuple[float, float]]]:
    """(1 / theta, factors) for a spectrum in [lower, upper]: first d = r / theta, then d = keep d + take r repeatedly.

    Saad, Iterative Methods for Sparse Linear Systems (2003), algorithm 12.1.
    """
    theta, delta = 0.5 * (upper + lower), 0.5 * (upper - lower)

    def factors():
        sigma = theta / delta
        rho = 1.0 / sigma
        while True:
            rho_next = 1.0 / (2.0 * sigma - rho)
            yield rho_next * rho, 2.0 * rho_next / delta
            rho = rho_next

    return 1.0 / theta, factors()


def noise(system):
    """A vector of numbers in [-1, 1) that depend only on the global number of the row.

    The number is mixed by splitmix64 (Steele, Lea & Flood 2014). A smooth right-hand side would hide the upper end of
    the spectrum from a few steps.
    """
    vector = system.vector()
    with np.errstate(over="ignore"):
        bits = system.global_rows().astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        bits ^= bits >> np.uint64(31)
    put(vector[: len(bits)], (bits >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1.0)
    return vector


def ritz_values(system, steps: int) -> tuple[np.ndarray, Solve]:
    """Ascending Ritz values of M A after up to `steps` steps of conjugate gradients on `noise`, and their Solve.

    Eigenvalues of the tridiagonal matrix that alpha and beta define (Saad 2003, section 6.7.3).
    """
    alpha, beta = [], []
    run = ConjugateGradients(system).iterate(noise(system), system.vector(), 0.0, steps)
    while True:
        try:
            scalars = next(run).scalars
        except StopIteration as stop:
            end = stop.value
            break
        if scalars:
            alpha.append(scalars["alpha"])
            beta.append(scalars["beta"])
    if not alpha:
        return np.empty(0), end
    a, b = np.array(alpha), np.array(beta)
    diagonal = 1.0 / a
    diagonal[1:] += b[1:] / a[:-1]
    return eigenvalues(diagonal, b[1:] / (a[:-1] * a[:-1])), end


def eigenvalues(diagonal: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Ascending eigenvalues of a symmetric tridiagonal matrix, float64 (n,), by bisection: `diagonal` (n,), and the
    squares (n - 1,) of the numbers beside it. NaN if one of them is not finite.

    The number of negative pivots of T - x is the number of eigenvalues below x (Barth, Martin & Wilkinson 1967). It
    needs only additions, divisions and comparisons, so the bits are the same on every processor, unlike LAPACK's.
    """
    n = len(diagonal)
    if not (np.isfinite(diagonal).all() and np.isfinite(squares).all()):
        return np.full(n, np.nan)
    beside = np.sqrt(squares)
    radius = np.append(beside, 0.0) + np.append(0.0, beside)
    low = np.full(n, (diagonal - radius).min())
    high = np.full(n, (diagonal + radius).max())
    tiny = np.finfo(np.float64).tiny * max(1.0, float(squares.max(initial=0.0)))
    number = np.arange(n)
    while True:
        middle = 0.5 * low + 0.5 * high
        if ((middle <= low) | (middle >= high)).all():
            return middle
        below = _negative_pivots(diagonal, squares, middle, tiny)
        low, high = np.where(below <= number, middle, low), np.where(below <= number, high, middle)


def _negative_pivots(diagonal, squares, x: np.ndarray, tiny: float) -> np.ndarray:
    """For each x the number of negative pivots of T - x; a pivot smaller than `tiny` is taken for -`tiny`."""
    count, pivot = np.zeros(len(x), np.int64), np.ones(len(x))
    for own, square in zip(diagonal, np.append(0.0, squares), strict=True):
        pivot = (own - x) - square / pivot
        pivot = np.where(np.abs(pivot) < tiny, -tiny, pivot)
        count += pivot < 0.0
    return count


@register
class Chebyshev(Method):
    """Chebyshev's semi-iteration (Saad 2003, algorithm 12.1) for a spectrum of M A in [lower, upper].

    No scalar depends on a dot product, so rounding differences of sums do not feed back. One all-reduce, |r|^2, only
    for the stopping test. Vectors: without M one pass, x, d, r, q read, x, d, r written (56 bytes per row in float64);
    16 more with M.

    `lower`, `upper`: the bounds; None is estimated before the first iteration by `lanczos_steps` of conjugate gradients
    (`ritz_values`), widened by ABOVE and BELOW, and kept. Eigenvalues above `upper` make the residual grow until
    "limit" or "not finite"; eigenvalues below `lower` are damped less. The residual is that of the recurrence, so it
    cannot show stagnation. An M or A that is not positive ends the estimate as it ends `cg`.
    """

    name = "chebyshev"
    why = "no scalar depends on a sum: shows rounding without feedback through dot products"
    symmetric = True
    reductions = 1
    goes_on_from = ("square", "lower", "upper", "keep", "take")

    def __init__(
        self, system, lower: float | None = None, upper: float | None = None, lanczos_steps: int = 20
    ):
        if lanczos_steps < 1:
            raise ValueError(f"{self.name}: lanczos_steps {lanczos_steps} must be at least 1")
        self._require_bounds(lower, upper)
        super().__init__(system)
        self.lower, self.upper, self.lanczos_steps = lower, upper, lanczos_steps
        self.q, self.d = system.vector(), system.vector()
        vectors, x_and_d = dict(x=self.x, d=self.d), "x = x + d; d = keep*d + take*"
        residual = dict(r=self.r, q=self.q)
        if system.preconditioned:
            self.z = system.vector()
            self._reduced = system.fuse(residual, "r = r - q", "r.r")
            self._advance = system.fuse(vectors | dict(z=self.z), x_and_d + "z")
        else:
            self.z = self.r
            self._advance = system.fuse(vectors | residual, f"r = r - q; {x_and_d}r", "r.r")

    def vectors(self):
        return {"x": self.x, "r": self.r, "d": self.d}

    def run(self, goal, begun=None):
        system, z, d = self.system, self.z, self.d
        number, square = 0, self.square
        scalars: dict[str, float] = {}
        if begun is not None:
            number, before = begun
            square, self.lower, self.upper = before["square"], before["lower"], before["upper"]
            scalars = {name: before[name] for name in ("keep", "take")}
        self.left = (square, self.lower or 0.0, self.upper or 0.0, *(scalars.values() or (0.0, 0.0)))
        end = goal.met(number, square)
        yield Iteration(number, goal.relative(square), scalars, end is not None)
        if end:
            return end
        bounds = self._bounds(goal, square)
        if isinstance(bounds, Solve):
            return bounds
        inverse_theta, factors = semi_iteration(*bounds)
        if begun is None:
            if system.preconditioned:
                system.precondition(self.r, z)
            d[...] = inverse_theta * z
        for _ in range(number):
            next(factors)
        while True:
            keep, take = next(factors)
            system.apply(d, self.q)
            if system.preconditioned:
                (square,) = self._reduced()
                system.precondition(self.r, z)
                self._advance(keep=keep, take=take)
            else:
                (square,) = self._advance(keep=keep, take=take)
            number += 1
            self.left = (square, *bounds, keep, take)
            end = goal.met(number, square)
            yield Iteration(number, goal.relative(square), {"keep": keep, "take": take}, end is not None)
            if end:
                return end

    def _bounds(self, goal, square: float) -> tuple[float, float] | Solve:
        """(lower, upper), estimated where they are None; the end, if the estimate finds no positive spectrum."""
        if self.lower is not None and self.upper is not None:
            return self.lower, self.upper
        values, end = ritz_values(self.system, self.lanczos_steps)
        if end.reason not in ("converged", "limit"):
            return goal.failed(0, square, end.reason, f"estimate of the spectrum: {end.detail}")
        lower = BELOW * float(values[0]) if self.lower is None else self.lower
        upper = ABOVE * float(values[-1]) if self.upper is None else self.upper
        self._require_bounds(lower, upper)
        self.lower, self.upper = lower, upper
        return lower, upper

    def _require_bounds(self, lower: float | None, upper: float | None) -> None:
        known = [bound for bound in (lower, upper) if bound is not None]
        ordered = len(known) < 2 or known[0] < known[1]
        if not ordered or not all(0.0 < bound < np.inf for bound in known):
            raise ValueError(
                f"{self.name}: the bounds lower = {lower} and upper = {upper} of the spectrum must be finite, positive "
                "and lower < upper; leave one out to have it estimated"
            )
