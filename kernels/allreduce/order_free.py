"""The reducers whose additions are of integers: `fixed-point` and `exact`.

Contributions enter the integers block by block, never summed as floating-point numbers before, so that it
makes no difference which rank owns which block. The MPI library adds the integers, in any order it likes.
"""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from kernels import exact
from kernels.allreduce.native import allreduce
from kernels.allreduce.reducer import Reducer


class ExactReducer(Reducer):
    """Superaccumulators: the total is the exact sum of all contributions, rounded once to nearest even."""

    def __init__(self, comm, ordering, shape, dtype, name):
        super().__init__(comm, ordering, shape, dtype, name)
        self._own = exact.zeros(shape)
        self.nbytes = self._own.nbytes
        if comm.size == 1 or not self.nbytes:
            self._words, self._sum = self._own, None
        else:
            self._words = exact.zeros(shape)
            self._sum = allreduce(self._comm, self._own, self._words, MPI.SUM, self._requests)

    def _reduce(self, contributions):
        self._own.fill(0)
        exact.add(self._own, contributions)
        return self._sum_own()

    def sum_words(self, words: np.ndarray) -> np.ndarray:
        """The total over all ranks of sums that the caller accumulated exactly.

        `words`: int64 (*shape, WORDS), left as they are. Raises ValueError for another shape or type.
        """
        if not self._comm:
            self._freed()
        if words.shape != self._own.shape or words.dtype != np.int64:
            raise ValueError(
                f"{self} expects words int64 {self._own.shape}, as kernels.exact.zeros makes them, "
                f"got {words.dtype} {words.shape}"
            )
        np.copyto(self._own, words)
        exact.carry(self._own)
        total = self._sum_own()
        if self.checked:
            self._check_ranks(total)
        return total

    def _sum_own(self) -> np.ndarray:
        if self._sum:
            self._sum()
        return exact.round(self._words, self._total)


class FixedPointReducer(Reducer):
    """One exponent for the whole vector, agreed on by MAX; then each element is one or two integers."""

    def __init__(self, comm, ordering, shape, dtype, name):
        super().__init__(comm, ordering, shape, dtype, name)
        limbs = len(exact.fixed_encode(np.zeros((0, *shape), dtype), exact.EMPTY))
        # The last word counts contributions: more than the words have room for must not go unnoticed.
        self._own = np.zeros(limbs * self._total.size + 1, np.int64)
        self._exponent = np.zeros(1, np.int32)
        self.nbytes = self._own.nbytes + self._exponent.nbytes
        self._collective = comm.size > 1 and bool(self._total.size)
        self._sum_words, self._most = self._own, self._exponent
        if self._collective:
            self._sum_words, self._most = np.zeros_like(self._own), np.zeros_like(self._exponent)
            self._sum = allreduce(self._comm, self._own, self._sum_words, MPI.SUM, self._requests)
            self._max = allreduce(self._comm, self._exponent, self._most, MPI.MAX, self._requests)
        self._own_limbs = self._own[:-1].reshape(limbs, *shape)
        self._sum_limbs = self._sum_words[:-1].reshape(limbs, *shape)

    def _reduce(self, contributions):
        self._exponent[0] = exact.fixed_exponent(contributions)
        if self._collective:
            self._max()
        self._own_limbs[...] = exact.fixed_encode(contributions, self._most[0])
        self._own[-1] = len(contributions)
        if self._collective:
            self._sum()
        if self._sum_words[-1] > exact.MAX_CONTRIBUTIONS:
            raise ValueError(
                f"{self}: {self._sum_words[-1]} contributions in all, but fixed point has room for "
                f"{exact.MAX_CONTRIBUTIONS}; sum blocks into fewer contributions first, or use 'exact'"
            )
        return exact.fixed_decode(self._sum_limbs, self._most[0], self.dtype, out=self._total)
