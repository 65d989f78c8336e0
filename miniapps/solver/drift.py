"""Measures how far orders of addition drive an iteration apart: several solves in lock step with an exact one.

All solves share matrix, preconditioner and right-hand side. The reference adds the dot products of the blocks exactly.
Sample s adds them in an order drawn from the seed and s, like GPU blocks that end with an atomic addition. Two solves
differ only in the order of these few additions.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from math import inf, nan, sqrt

from miniapps.linear.krylov import Solve
from miniapps.linear.krylov.base import Iteration, Method


@dataclass
class Lane:
    """One of the solves, advanced iteration by iteration; a finished solve keeps its last iterate."""

    method: Method
    steps: Generator[Iteration, None, Solve]
    solve: Solve | None = None
    # |x_k - x_k of the reference| / |x_k of the reference|
    difference: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)

    def advance(self) -> None:
        """Do the next iteration, if any."""
        if self.solve is not None:
            return
        try:
            self.residual.append(next(self.steps).residual)
        except StopIteration as end:
            self.solve = end.value


def study(ctx, workspace) -> None:
    """Solve in lock step until all solves have ended; rank 0 records the samples. Collective."""
    solve, problem = ctx.config.solve, workspace.problem

    def lane(system) -> Lane:
        method = workspace.method(system)
        return Lane(method, method.iterate(problem.b, system.vector(), solve.tolerance, solve.max_iterations))

    reference = workspace.system("exact", by=("direct", "exact"))
    exact = lane(reference)
    lanes = [
        lane(workspace.system("samples", arrival=(ctx.seed << 32) + sample))
        for sample in range(ctx.config.drift.samples)
    ]
    there, here = reference.vector(), reference.vector()
    distance = reference.fuse(dict(here=here, there=there), "here = here - there", "here.here there.there")
    m = problem.matrix.rows.m
    while True:
        for each in (exact, *lanes):
            each.advance()
        there[:m] = exact.method.solution()[:m]
        ends = [each.solve for each in lanes if each.solve is not None]
        if exact.solve is not None and len(ends) == len(lanes):
            break
        for each in lanes:
            here[:m] = each.method.solution()[:m]
            each.difference.append(_relative(*distance()))
    if ctx.rank == 0:
        _record(ctx.tracer, lanes, ends)


def _record(tracer, lanes: list[Lane], ends: list[Solve]) -> None:
    for sample, (each, end) in enumerate(zip(lanes, ends, strict=True)):
        tracer.series("difference", 0, each.difference, block=sample)
        tracer.series("drift_residual", 0, each.residual, block=sample)
        tracer.series("drift_iterations", end.iterations, [end.iterations], block=sample)


def _relative(square: float, norm: float) -> float:
    if not square >= 0.0:  # NaN
        return nan
    return sqrt(square / norm) if norm > 0.0 else (0.0 if square == 0.0 else inf)
