"""A linear system over ranks: a matrix, an optional preconditioner, fused vector updates and global dot products.

The bits of matrix products and updates do not depend on the layout. A dot product has one partial sum per logical
block, and the reducer decides how the partial sums are added.
"""

from typing import Any

import numpy as np

from kernels import exact as accumulator
from kernels import vectors as updates
from miniapps.system.device import host, put


class System:
    """The interface of a square `miniapps.linear.matrix.Matrix` to the methods of `miniapps.linear.krylov`.

    reducer(n) -> an all-reduce of float64 (n,), called with the partial sums (own blocks, n). The system calls
    reducer(n) once per n, on first use, which is collective. Example:

        lambda n: ctx.reducer(f"dots{n}", (n,), blocks=matrix.rows.own)

    `precondition`: one of `miniapps.linear.preconditioners`, with `apply(r, z)`, `flops` and `nbytes`; None for M = I.
    `backend`, `threads`: of `kernels.vectors`.

    `exact`: every product enters the superaccumulator with both parts, so dot products depend on no order; the
    reducer's accumulation must be `exact`. Then `start` of a fused kernel begins no sum, and `finish` does all of it.

    `arrival`: a seed; each dot product adds the partial sums of this rank's blocks one by one, in an order drawn from
    (seed, rank, number of the call), like blocks of a GPU that end with an atomic addition.

    `flops`, `nbytes`: of this rank so far, counted operations and the least number of moved bytes.

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
        """z = M r. Raises RuntimeError without a preconditioner."""
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
        without blocking.
        """
        return Fused(self, vectors, steps, dots)

    def count(self, begin: int, nbytes: int, flops: int) -> None:
        """Count a fused kernel that began at `begin`, and record its event."""
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
                self._flops += 2 * len(pairs) * m  # of the dot products, without the work for exactness
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
        """Returns the sums that `start` began."""
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
        """Replace the first partial sum by the sum in this order, and the others by 0."""
        if len(order):
            total = np.add.accumulate(host(self._partials)[order], axis=0)[-1]
            self._partials[...] = 0.0
            put(self._partials[0], total)


def _no_clock():
    return 0


def _unseen(name, start, nbytes=0, flops=0):
    """The event of a system without a trace."""
