"""Verification after every solve; each check can fail."""

from math import sqrt

import numpy as np

from miniapps.runner.outcome import Check
from miniapps.solver.problem import GENERAL, ONE, OTHER, random_by_block
from miniapps.system.device import put

EPS = {"float64": 2.0**-53, "float32": 2.0**-24}
LANES = 64  # of a block's dot product: each adds block / 64 terms in a chain, then a tree of 6 levels adds the lanes


def verify(ctx, problem, system, method, solve, history) -> list[Check]:
    """The checks of a finished solve, the same on every rank. Collective."""
    checks = [
        _converged(ctx, solve),
        _attained(ctx, solve, history),
        _true_residual(ctx, problem, system, method, solve, history),
    ]
    if method.symmetric:
        checks.append(_symmetry(ctx, problem, system))
    return checks


def verify_range(ctx, problem, x) -> list[Check]:
    """The check that the unscaled solution has all its digits in float64; empty for unscaled systems. Collective."""
    if problem.shift == 0:
        return []
    largest = max(ctx.comm.allgather(float(np.abs(x).max(initial=0.0))))
    lost = largest == np.inf or 0.0 < largest < np.finfo(np.float64).tiny
    return [
        Check(
            "range",
            not lost,
            f"the largest element of the solution is {largest:g}, beyond the normal numbers of float64: choose other "
            "units for the matrix or the right side",
        )
    ]


def _converged(ctx, solve) -> Check:
    asked = ctx.config.solve
    what = {
        "limit": "raise --max-iterations, or choose a --preconditioner",
        "negative curvature": f"the matrix is not positive definite; choose {GENERAL}",
        "breakdown": "choose another --method",
        "stagnation": "the tolerance cannot be met by this method; raise --tolerance, or choose another --method",
        "not finite": "the matrix or right-hand side is out of range, or the method diverges",
    }.get(solve.reason, "")
    detail = f" ({solve.detail})" if solve.detail else ""
    return Check(
        "converged",
        solve.converged,
        f"{asked.method} ended with {solve.reason}{detail} after {solve.iterations} iterations, at a relative residual "
        f"of {solve.residual:.3g}, above solve.tolerance = {asked.tolerance:g}: {what}",
    )


def _attained(ctx, solve, history) -> Check:
    """The check that the residual of the method agrees with b - A x within the tolerance. b - A x is computed with
    twice the digits of float64 (`Recorder.precise_residual`)."""
    asked, gap = ctx.config.solve, history.true_residual - solve.residual
    return Check(
        "attained with twice the digits",
        not solve.converged or gap <= asked.tolerance,
        f"{asked.method} reports a relative residual of {solve.residual:.3g}, but |b - A x| / |b| is "
        f"{history.true_residual:.3g}: rounding in {asked.dtype} prevents solve.tolerance = {asked.tolerance:g}; raise "
        "it",
    )


def _true_residual(ctx, problem, system, method, solve, history) -> Check:
    """The check that |b - A x| / |b| equals the recurrence's residual, up to rounding.

    Greenbaum (SIAM J. Matrix Anal. Appl. 18, 1997), theorem 2.2, with iterates no larger than the last (true of
    conjugate gradients from zero): the gap is at most eps (k + 2 + c + k (10 + 2 c)) |A| |x|, c = m sqrt(n) for m
    entries in a row.
    """
    k, c = solve.iterations, problem.most * sqrt(problem.matrix.n)
    square_x, square_b = system.fuse(dict(x=method.solution(), b=problem.b), "", "x.x b.b")()
    gap = EPS[ctx.config.solve.dtype] * (k + 2 + c + k * (10 + 2 * c)) * problem.largest * sqrt(square_x)
    bound = solve.residual + (gap / sqrt(square_b) if square_b > 0.0 else 0.0)
    return Check(
        "true residual",
        history.true_residual <= bound,
        f"|b - A x| / |b| = {history.true_residual:.3g}, but the method's own residual is {solve.residual:.3g}, and "
        f"rounding explains at most {bound:.3g}",
    )


def _symmetry(ctx, problem, system) -> Check:
    """The check that x . A y = y . A x for random x and y, up to the rounding of two products and two dot products (as
    in HPCG)."""
    rows, matrix = problem.matrix.rows, problem.matrix
    x, y, ax, ay = (system.vector() for _ in range(4))
    for vector, key in ((x, ONE), (y, OTHER)):
        put(vector[: rows.m], random_by_block(rows, (ctx.seed, key)).astype(matrix.dtype))
    matrix.apply(x, ax)
    matrix.apply(y, ay)
    one, other, xx, yy = system.fuse(dict(x=x, y=y, ax=ax, ay=ay), "", "x.ay y.ax x.x y.y")()
    terms = problem.most + np.diff(rows.starts).max() / LANES + 8 + rows.count + ctx.size
    bound = 2 * EPS[ctx.config.solve.dtype] * terms * problem.largest * sqrt(xx) * sqrt(yy)
    return Check(
        "symmetry",
        abs(one - other) <= bound,
        f"|x.Ay - y.Ax| = {abs(one - other):.3g} for random x and y, where rounding explains at most {bound:.3g}: "
        "the product is wrong, or the matrix is not symmetric",
    )
