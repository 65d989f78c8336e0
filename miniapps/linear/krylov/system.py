"""A linear system over ranks: a matrix, maybe a preconditioner, fused vector updates and global dot products.

Where the bits come from: the matrix and the updates do not depend on the layout; a dot product is one partial sum per
logical block, and the reducer decides how those are added.
"""

from typing import Any

import numpy as np

from kernels import exact as accumulator
from kernels import vectors as updates
from miniapps.system.device import host, put


class System:
    """What the methods of `miniapps.linear.krylov` see of a `miniapps.linear.matrix.Matrix` that is square.

    reducer(n) -> an all-reduce of float64 (n,), called with the partial sums (own blocks, n); asked for once per n, on
    first use, which is collective: such as

        lambda n: ctx.reducer(f"dots{n}", (n,), blocks=matrix.rows.own)

    `precondition`: one of `miniapps.linear.preconditioners`, with `apply(r, z)`, `flops` and `nbytes`; None for M = I.
    `backend`, `threads`: of `kernels.vectors`.

    `exact`: every product enters the superaccumulator with both parts, so that no order is left anywhere; the reducer's
    accumulation must be `exact`. Nothing is then under way between `start` and `finish` of a fused kernel.

    `arrival`: a seed; each dot product adds the partial sums of this rank's blocks one after the other, in an order
    drawn from (seed, rank, number of the call), as blocks of a GPU would that end with an atomic addition. The bits are
    those of the seed: it injects orders.

    `flops`, `nbytes`: of this rank so far, the operations counted and the least that had to move.

    `trace`: the Tracer that gets the events "update" (fused kernels) and "precondition".

    Raises ValueError for a rectangular matrix, and for `exact` and `arrival` together.
    """

    def __init__(
        self,
        matrix,
        reducer,
        precondition=None,
        backend: str = "native",
        threads: int = 1,
        exact: bool = False,
        arrival: int | None = None,
        trace=None,
    ):
        if matrix.rows is not matrix.columns:
            raise ValueError("a system needs a square matrix: its rows and columns must be the same Rows")
        if exact and arrival is not None:
            raise ValueError("exact sums have no order of arrival: give exact or arrival, not both")
        self.matrix, self.dtype, self.n = matrix, matrix.dtype, matrix.n
        self.preconditioned = precondition is not None
        self.vector = matrix.operand
        self.flops = self.nbytes = 0
        self.diagonal, self.global_rows = matrix.diagonal, matrix.rows.global_rows
        self._preconditioner = precondition
        self.exact, self.threads, self.kernels = exact, threads, updates.backend(backend)
        self.draws = None if arrival is None else Draws(arrival, matrix.rows.rank)
        self._reducer = reducer
        self._reducers: dict[int, Any] = {}  # by number of sums
        self.clock, self._event, self._update, self._preconditioning = _no_clock, _unseen, 0, 0
        if trace is not None:
            self.clock, self._event = trace.clock, trace.event
            self._update, self._preconditioning = trace.name("update"), trace.name("precondition")

    def apply(self, x, y) -> None:
        """y = A x; fills the ghosts of x."""
        self.matrix.apply(x, y)
        self.flops += self.matrix.flops
        self.nbytes += self.matrix.nbytes

    def precondition(self, r, z) -> None:
        """z = M r; RuntimeError where there is no preconditioner."""
        if not self.preconditioned:
            raise RuntimeError("this system has no preconditioner: `preconditioned` is False, use r itself")
        start = self.clock()
        self._preconditioner.apply(r, z)
        self.flops += self._preconditioner.flops
        self.nbytes += self._preconditioner.nbytes
        self._event(self._preconditioning, start, self._preconditioner.nbytes, self._preconditioner.flops)

    def fuse(self, vectors, steps: str, dots: str = "") -> "Fused":
        """Steps and the global sums of dot products, in the language of `kernels.vectors.steps`; planned once.

        `vectors`: by name, made by `vector()`. f(**scalars) -> list of float; f.start(**scalars), f.finish(): the same
        with the sums under way.
        """
        return Fused(self, vectors, steps, dots)

    def count(self, begin: int, nbytes: int, flops: int) -> None:
        """Take note of a fused kernel that began at `begin`."""
        self.nbytes += nbytes
        self.flops += flops
        self._event(self._update, begin, nbytes, flops)

    def reducer(self, n: int):
        """The all-reduce of n sums."""
        if n not in self._reducers:
            self._reducers[n] = self._reducer(n)
        return self._reducers[n]


class Draws:
    """Orders of arrival, one per call."""

    def __init__(self, seed: int, rank: int):
        self._key, self._calls = (seed, rank), 0

    def next(self, count: int) -> np.ndarray:
        """A permutation of `count`."""
        self._calls += 1
        return np.random.default_rng([*self._key, self._calls]).permutation(count)


class Fused:
    """Made by `System.fuse`."""

    def __init__(self, system: System, vectors, steps: str, dots: str):
        self._system = system
        pairs = [pair.split(".") for pair in dots.split()]
        starts, kernels = system.matrix.rows.local_starts, system.kernels
        self._run = None
        if steps or (dots and not system.exact):
            self._run = kernels.fuse(vectors, steps, "" if system.exact else dots, starts, system.threads)
        self._nbytes: int = self._run.nbytes if self._run else 0
        self._flops: int = self._run.flops if self._run else 0
        self._partials: Any = None  # NumPy's or CuPy's
        self._words: np.ndarray | None = None
        self._reducer = system.reducer(len(pairs)) if pairs else None
        if pairs:
            if system.exact:
                m = system.matrix.rows.m
                self._words = accumulator.zeros((len(pairs),))
                self._pairs = [tuple(vectors[name][:m] for name in pair) for pair in pairs]
                self._flops += 2 * len(pairs) * m  # of the dot products, not of what makes them exact
            else:
                self._partials = kernels.xp.zeros((len(starts) - 1, len(pairs)))

    def __call__(self, **scalars) -> list[float]:
        self._execute(scalars)
        if self._reducer is None:
            return []
        if self._words is not None:
            return self._reducer.sum_words(self._words).tolist()
        return self._reducer(self._partials).tolist()

    def start(self, **scalars) -> None:
        """Run the steps and begin the sums."""
        self._execute(scalars)
        if self._reducer is not None and self._words is None:
            self._reducer.start(self._partials)

    def finish(self) -> list[float]:
        """The sums that were begun."""
        if self._reducer is None:
            return []
        if self._words is not None:
            return self._reducer.sum_words(self._words).tolist()
        return self._reducer.finish().tolist()

    def _execute(self, scalars) -> None:
        system = self._system
        begin = system.clock()
        if self._run:
            self._run(self._partials, **scalars)
        if self._words is not None:
            self._words[...] = 0
            pairs = [(host(a), host(b)) for a, b in self._pairs]
            accumulator.add_many_products(self._words, pairs, system.threads)
        elif self._partials is not None and system.draws:
            self._arrive(system.draws.next(len(self._partials)))
        system.count(begin, self._nbytes, self._flops)

    def _arrive(self, order) -> None:
        """Put the sum in this order into the first partial sum and 0 into the others."""
        if len(order):
            total = np.add.accumulate(host(self._partials)[order], axis=0)[-1]
            self._partials[...] = 0.0
            put(self._partials[0], total)


def _no_clock():
    return 0


def _unseen(name, start, nbytes=0, flops=0):
    """The event where nobody traces."""
