"""A system of one process for `miniapps.linear.krylov`: dense or scipy.sparse matrix, updates by `kernels.vectors`."""

import numpy as np

from kernels.vectors import backend

BLOCK = 64  # rows of a partial sum


class SerialSystem:
    """As the system of `miniapps.linear.krylov.base`. `inverse(r)` is M r, None for M = I; `calls` counts the work."""

    def __init__(self, matrix, inverse=None, dtype=np.float64, kernels="reference"):
        self.matrix, self.inverse, self.kernels = matrix.astype(dtype), inverse, backend(kernels)
        self.dtype, self.n, self.preconditioned = np.dtype(dtype), matrix.shape[0], inverse is not None
        self.calls = dict.fromkeys(("apply", "precondition", "sums"), 0)

    def vector(self):
        return np.zeros(self.n, self.dtype)

    def apply(self, x, y):
        self.calls["apply"] += 1
        y[...] = self.matrix @ x

    def precondition(self, r, z):
        assert self.preconditioned
        self.calls["precondition"] += 1
        z[...] = self.inverse(r)

    def diagonal(self):
        return np.asarray(self.matrix.diagonal(), self.dtype)

    def global_rows(self):
        return np.arange(self.n)

    def fuse(self, vectors, steps, dots=""):
        return Fused(self, vectors, steps, dots)


class Fused:
    """The steps, then the sums of all blocks from the left; if under way, `finish` gives what `start` made."""

    def __init__(self, system, vectors, steps, dots):
        starts = np.array([*range(0, system.n, BLOCK), system.n])
        self.calls, self.under_way = system.calls, None
        self.run = system.kernels.fuse(vectors, steps, dots, starts)
        self.partials = np.zeros((len(starts) - 1, len(dots.split()))) if dots else None

    def __call__(self, **scalars):
        self.start(**scalars)
        return self.finish()

    def start(self, **scalars):
        assert self.under_way is None
        self.run(self.partials, **scalars)
        self.under_way = []
        if self.partials is not None:
            self.calls["sums"] += 1
            self.under_way = np.add.accumulate(self.partials)[-1].tolist()

    def finish(self):
        sums, self.under_way = self.under_way, None
        return sums


def history(method, b, x, tolerance, limit):
    """(all iterations, the end)."""
    run, iterations = method.iterate(b, x, tolerance, limit), []
    while True:
        try:
            iterations.append(next(run))
        except StopIteration as end:
            return iterations, end.value
