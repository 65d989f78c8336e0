"""A system of one process for `miniapps.krylov`: a dense or scipy.sparse matrix, and steps evaluated by NumPy."""

import numpy as np


class SerialSystem:
    """As the system of `miniapps.krylov.base`. `inverse(r)` is M r, None for M = I; `calls` counts the work."""

    def __init__(self, matrix, inverse=None, dtype=np.float64):
        self.matrix, self.inverse = matrix.astype(dtype), inverse
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
    """Runs the steps in order, then the dots; with the sums under way, `finish` gives what `start` computed."""

    def __init__(self, system, vectors, steps, dots):
        self.system, self.vectors, self.dtype = system, vectors, system.dtype.type
        self.steps = [tuple(map(str.strip, step.split("="))) for step in steps.split(";") if step]
        self.dots = [pair.split(".") for pair in dots.split()]
        self.under_way = None

    def __call__(self, **scalars):
        self.start(**scalars)
        return self.finish()

    def start(self, **scalars):
        assert self.under_way is None
        names = self.vectors | {name: self.dtype(value) for name, value in scalars.items()}
        for target, terms in self.steps:
            self.vectors[target][...] = eval(terms, {}, names)
        sums = [np.dot(*(self.vectors[name].astype(np.float64) for name in pair)) for pair in self.dots]
        self.system.calls["sums"] += bool(self.dots)
        self.under_way = [float(total) for total in sums]

    def finish(self):
        sums, self.under_way = self.under_way, None
        return sums
