"""Records every iteration: the residual, the scalars of the method, the error, and bits.

Step k of the trace is the state after k iterations, and the work of iteration k + 1.
"""

from dataclasses import dataclass
from math import inf, nan, sqrt

import numpy as np

from kernels import exact
from miniapps.system.device import host
from miniapps.trace.schema import OTHER

# Methods that can measure the orthogonality of residuals after every iteration.
WITH_ORTHOGONALITY = ("cg", "cg-chronopoulos-gear", "cg-pipelined")


@dataclass
class History:
    """Data for the checks and figures of merit."""

    true_residual: float = nan  # relative, at the end
    recording_ns: int = 0  # time spent on recording so far


class Recorder:
    """Records one solve of `method`. Construction and calls are collective: true residual and error are sums."""

    def __init__(self, ctx, problem, system, method):
        self.ctx, self.problem, self.system, self.method = ctx, problem, system, method
        self.tracer, self.config, self.history = ctx.tracer, ctx.config.record, History()
        self.rows = problem.matrix.rows
        self._watches = self.config.orthogonality and ctx.config.solve.method in WITH_ORTHOGONALITY
        self._event = self.tracer.name("record", OTHER)
        self._copy = system.vector()
        self._product = system.vector()
        self._true = system.fuse(dict(r=self._product, b=problem.b), "r = b - r", "r.r")
        self._norm_b = sqrt(system.fuse(dict(b=problem.b), "", "b.b")()[0])
        x = problem.solution
        self._error = None if x is None else system.fuse(dict(e=self._copy, x=x), "e = e - x", "e.e")
        self._norm_x = 0.0 if x is None else sqrt(system.fuse(dict(x=x), "", "x.x")()[0])

    def __call__(self, iteration) -> None:
        """Record the state after `iteration`."""
        start = self.tracer.clock()
        work = self.system.flops, self.system.nbytes
        k, every = iteration.number, self.config.true_every
        if self.config.every and k % self.config.every == 0:
            self.fingerprints()  # first, before any kernel of the recording runs
        values = {"residual": iteration.residual} | iteration.scalars
        if every and k % every == 0:
            values["true_residual"] = self.true_residual()
        if self.config.error and (error := self.error()) is not None:
            values["error"] = error
        if self._watches:
            values["orthogonality"] = self.method.orthogonality()
        if self.ctx.rank == 0:
            for name, value in values.items():
                self.tracer.value(name, value)
        self.system.flops, self.system.nbytes = work  # recording does not count as work of the method
        self.tracer.event(self._event, start)
        self.history.recording_ns += self.tracer.clock() - start

    def end(self, solve, part: bool = False) -> None:
        """Record the results of a finished solve; for a `part` of a solve, only compute the true residual."""
        self.history.true_residual = self.precise_residual()
        orthogonality = self.method.orthogonality()
        if self.ctx.rank == 0 and not part:
            margin = solve.margin(self.ctx.config.solve.tolerance)
            self.tracer.decision("iterations", solve.iterations, margin)
            self.tracer.decision("converged", solve.converged, margin)
            if not self.config.true_every or solve.iterations % self.config.true_every:
                self.tracer.value("true_residual", self.history.true_residual)
            if orthogonality is not None and not self._watches:
                self.tracer.value("orthogonality", orthogonality)

    def true_residual(self) -> float:
        """|b - A x| / |b| of the current iterate, in the type of the matrix. Collective."""
        m = self.rows.m
        self._copy[:m] = self.method.solution()[:m]
        self.problem.matrix.apply(self._copy, self._product)
        return _ratio(self._true()[0], self._norm_b)

    def precise_residual(self) -> float:
        """|b - A x| / |b| of the current iterate: rows computed with twice the digits of float64, and exact sums of
        their squares, so that it shows the rounding of the solve in any precision. Collective."""
        m = self.rows.m
        self._copy[:m] = self.method.solution()[:m]
        b = host(self.problem.b[:m]).astype(np.float64)
        r = self.problem.matrix.residual(self._copy, self.problem.b)
        if not np.isfinite(r).all():
            r[...] = np.nan
        words, total = exact.zeros(2), exact.zeros(2)
        exact.add_many_products(words, [(r, r), (b, b)])
        self.ctx.comm.Allreduce(words, total)
        square, norm = exact.round(total).tolist()
        return _ratio(square, sqrt(norm))

    def error(self) -> float | None:
        """|x - x*| / |x*| of the current iterate; None if the solution is unknown. Collective."""
        if self._error is None:
            return None
        m = self.rows.m
        self._copy[:m] = self.method.solution()[:m]
        return _ratio(self._error()[0], self._norm_x)

    def fingerprints(self) -> None:
        """Record the bits of the state's vectors, by block."""
        for name, vector in self.method.state().items():
            values = host(vector[: self.rows.m])
            for block, (start, stop) in zip(self.rows.own, _spans(self.rows), strict=True):
                self.tracer.array(name, block, values[start:stop])


def _spans(rows):
    return zip(rows.local_starts[:-1].tolist(), rows.local_starts[1:].tolist(), strict=True)


def _ratio(square: float, norm: float) -> float:
    if not square >= 0.0:  # NaN
        return nan
    return sqrt(square) / norm if norm > 0.0 else (0.0 if square == 0.0 else inf)
