"""How `direct` carries the accumulations `fixed-point` and `exact`, whose totals do not depend on any order.

The bits are defined by the integers of `kernels.exact`: contributions enter these one by one, never summed as
floating-point numbers before, so that it makes no difference which rank owns which block. But integers take 2 to 70
times the bytes. So where no rank brings more than one contribution, the contributions themselves travel, and whoever
has those of all ranks adds them with the same bits as result (kernels/native/contributions_*.cpp):

    records   of short vectors: each rank sends all it has to all others, in one all-gather
    direct    of longer ones: to the owner of each chunk, who adds and sends the sum to all
    sums      where a rank brings several: numbers or integers that stand for their sum, to the owners as well

All ranks see the same records, or agree by MAX before anything else, so that all go the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from kernels import _native, exact
from kernels.allreduce.execution.executor import ScheduleReducer, require_words
from kernels.allreduce.execution.handover import PARTS, Expanded
from kernels.allreduce.execution.library import all_gather, allreduce
from kernels.allreduce.execution.owners import Owners
from kernels.allreduce.execution.reducer import Reducer
from kernels.allreduce.operations import SUM, Operation
from kernels.environment import guarded

RECORD_BYTES = 1 << 15  # all ranks' records together: from there on, all to all costs more than two rounds
ADDED_AS_NUMBERS = 64  # contributions; more are added in words first


class OrderFreeReducer(Reducer):
    """What both have in common. `record`: shape and type of what a rank sends of a short vector.

    A subclass gives `add(sources, most, out)`, the sum of one contribution of each rank, and `agreed`, how many numbers
    are agreed on by MAX, in `self._most`, before it is made. It implements

    _bring(contributions)       fills the record or, of a longer vector, `self._mine`, from which `self._most` comes
    _add_records()              the total of all ranks' records; False where records did not do
    _one_each()                 whether it was agreed that contributions go as they are
    _by_sums(contributions, out)   the total where they do not
    """

    def __init__(self, comm, reduction, name, record, agreed: int, add: Callable):
        super().__init__(comm, reduction, name)
        comm, requests = self._comm, self._requests
        self._n = self._total.size
        self._record = np.zeros(*record)
        self._short = comm.size * self._record.nbytes <= RECORD_BYTES
        self._owners = Owners(comm, self._n)
        if self._short:
            self._flat = self._total.reshape(-1)
            self._records = np.zeros((comm.size, *self._record.shape), self._record.dtype)
            self._exchange, self._begin_exchange = all_gather(comm, self._record, self._records, requests)
            self.nbytes = self._record.nbytes
        else:
            self._mine, self._most = np.zeros(agreed, np.int32), np.zeros(agreed, np.int32)
            self._exchange, self._begin_exchange = allreduce(comm, self._mine, self._most, MPI.MAX, requests)
            flat = replace(reduction, shape=self._n, accumulation="working", check=False)
            schedule = reduction.entry.schedule(comm.size)
            self._direct = ScheduleReducer(comm, flat, "", schedule, _adding(add, self._most))
            self.nbytes = self._total.nbytes + self._mine.nbytes

    def _bring(self, contributions: np.ndarray) -> None:
        """Put what this rank exchanges into its record or, of a long vector, into `self._mine`."""
        raise NotImplementedError

    def _add_records(self) -> bool:
        """Add the records of all ranks into the total, if they suffice."""
        raise NotImplementedError

    def _one_each(self) -> bool:
        """Whether every rank has at most one contribution, so that `direct` takes these as they are."""
        raise NotImplementedError

    def _by_sums(self, contributions, out: np.ndarray) -> np.ndarray:
        """The total by integer sums over ranks."""
        raise NotImplementedError

    def _reduce(self, contributions):
        # As `_reduce_into`, without the call, which shows in the time of a short vector.
        self._bring(contributions)
        self._exchange()
        return self._complete(contributions, self._total)

    def _reduce_into(self, contributions, out):
        self._bring(contributions)
        self._exchange()
        return self._complete(contributions, out)

    def _complete(self, contributions, out):
        """The total, once records are there, or `self._most` is."""
        if not self._short:
            if not self._one_each():
                return self._by_sums(contributions, out)
            self._direct(contributions.reshape(len(contributions), self._n), out.reshape(-1))
            return out
        if not self._add_records():
            self._by_sums(contributions, self._total)
        if out is not self._total:
            np.copyto(out, self._total)
        return out

    def _begin(self, contributions, out):
        self._bring(contributions)
        self._request, self._flying = self._begin_exchange(), False

    def _progress(self):
        if not self._request.Test():
            return False
        if self._short:
            return True
        if not self._flying:
            if not self._one_each():
                return False
            contributions, out = self._given()
            self._direct.start(contributions.reshape(len(contributions), self._n), out.reshape(-1))
            self._flying = True
        return self._direct.progress()

    def _end(self):
        self._request.Wait()
        contributions, out = self._given()
        if not self._flying:
            return self._complete(contributions, out)
        self._direct.finish()
        return out

    def _given(self) -> tuple[np.ndarray, np.ndarray]:
        contributions, out = self._started
        return contributions, self._total if out is None else out

    def _give_back(self):
        if not self._short:
            self._direct.free()
        super()._give_back()


class ExactReducer(OrderFreeReducer):
    """The total is the exact sum of all contributions, rounded once to nearest even.

    Several contributions of a rank become up to PARTS numbers with the same sum, by error-free additions, or words of
    a superaccumulator where these do not suffice.
    """

    def __init__(self, comm, reduction, name):
        record = (PARTS, math.prod(reduction.shape)), np.float64
        super().__init__(comm, reduction, name, record, 1, _exact_sum)
        if self._short:
            self._rows = self._records.reshape(comm.size * PARTS, self._n)

    def _bring(self, contributions):
        if not self._short:
            self._parts, self._mine[0] = None, 0
            if len(contributions) > 1:
                self._parts = np.empty((PARTS, self._n))
                self._mine[0] = _native.exact_expand(np.ascontiguousarray(contributions), self._parts)
        elif len(contributions) <= ADDED_AS_NUMBERS:
            self._write(_native.exact_expand(np.ascontiguousarray(contributions), self._record))
        else:
            self._write(_native.exact_expand_words(self._words_of(contributions), self._record))

    def _make_handover(self):
        # A single contribution travels as it is.
        several = len(self.blocks or ()) > 1
        return (
            Expanded(str(self), self.blocks, self.shape, self.dtype) if several else super()._make_handover()
        )

    def _reduce_added(self, added):
        if not isinstance(added, Expanded):
            return super()._reduce_added(added)
        if self._short and added.words is not None:
            self._write(_native.exact_expand_words(added.words, self._record))
        elif self._short:
            np.copyto(self._record, added.parts)
        else:
            self._parts, self._mine[0] = added.parts, added.used
        self._exchange()
        return self._complete(added, self._total)

    def _write(self, needed: int) -> None:
        """The record would need so many parts. Where these are too many a NaN says so: it makes the total one."""
        if needed > PARTS:
            self._record[0] = np.nan

    def _add_records(self) -> bool:
        resolved = _native.exact_sum(self._rows, self._flat)
        return not (resolved and np.isnan(self._flat).any())

    def _one_each(self):
        return self._most.item(0) == 0

    def _by_sums(self, contributions, out):
        needed = PARTS + 1 if self._short else int(self._most[0])
        if needed > PARTS:
            return self._add_words(self._words_of(contributions), out)
        parts, self._parts = self._parts, None
        if parts is None:
            parts = np.zeros((needed, self._n))
            parts[: len(contributions)] = contributions.reshape(len(contributions), self._n)
        flat, parts = out.reshape(-1), self._owners.collect(parts[:needed])
        own = self._owners.own(flat)
        _native.exact_sum(parts.reshape(self._comm.size * needed, own.size), own)
        return self._owners.deliver(flat, out)

    def _words_of(self, contributions: np.ndarray | Expanded) -> np.ndarray:
        if isinstance(contributions, Expanded):
            if contributions.words is not None:
                return contributions.words
            contributions = contributions.parts.reshape(PARTS, *self.shape)
        words = exact.zeros(self.shape)
        exact.add(words, contributions)
        return words

    def _add_words(self, words: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The total of all ranks' words, carried, summed by owners, or by the library where there are few."""
        if self._n <= max(self._comm.size, 64):
            everything = np.empty_like(words)
            self._comm.Allreduce(words, everything)
            return exact.round(everything, out)
        flat = out.reshape(-1)
        parts = self._owners.collect(words.reshape(1, -1, exact.WORDS))
        exact.round(parts.sum(axis=(0, 1)), self._owners.own(flat))
        return self._owners.deliver(flat, out)

    @guarded
    def sum_words(self, words: np.ndarray) -> np.ndarray:
        """The total over all ranks of sums that the caller accumulated exactly.

        `words`: int64 (*shape, WORDS), left as they are. Raises ValueError for another shape or type.
        """
        require_words(self, words)
        words = np.ascontiguousarray(words)
        done = False
        if self._short:
            self._write(_native.exact_expand_words(words, self._record))
            self._exchange()
            done = self._add_records()
        if not done:
            words = words.copy()
            exact.carry(words)
            self._add_words(words, self._total)
        if self.checked:
            self._check_ranks(self._total)
        return self._total


class FixedPointReducer(OrderFreeReducer):
    """One exponent for the whole vector, the largest of all ranks; then each element is rounded to one unit.

    Several contributions of a rank are added as integers, one or two words per element.
    """

    def __init__(self, comm, reduction, name):
        # A record begins with the exponent and the number of contributions.
        record = (2 + math.prod(reduction.shape),), reduction.dtype
        super().__init__(comm, reduction, name, record, 2, _fixed_sum)
        self._words: np.ndarray | None = None  # made when first needed: mostly never

    def _bring(self, contributions):
        contributions = np.ascontiguousarray(contributions)
        if self._short:
            _native.fixed_record(contributions, self._record)
        else:  # n = 1: the number of all contributions is looked at below, on all ranks alike
            self._mine[:] = exact.fixed_exponent(contributions, n=1), len(contributions)

    def _add_records(self):
        self._exponent, several, self._count = _native.fixed_sum_records(self._records, self._flat)
        return several <= 1

    def _one_each(self):
        return self._most.item(1) <= 1 and self._comm.size <= _native.FIXED_MOST_SOURCES

    def _by_sums(self, contributions, out):
        if not self._short:
            count = np.array([len(contributions)])
            self._comm.Allreduce(MPI.IN_PLACE, count)
            self._exponent, self._count = int(self._most[0]), int(count[0])
        if self._count > exact.MAX_CONTRIBUTIONS:
            raise ValueError(
                f"{self}: {self._count} contributions in all, but fixed point has room for "
                f"{exact.MAX_CONTRIBUTIONS}; sum blocks into fewer contributions first, or in 'exact'"
            )
        if self._words is None:
            self._words = np.empty((exact.LIMBS[self.dtype], self._n), np.int64)
        rows = contributions.reshape(len(contributions), self._n)
        exact.fixed_encode(rows, self._exponent, out=self._words)
        flat, parts = out.reshape(-1), self._owners.collect(self._words)
        exact.fixed_decode(parts.sum(axis=0), self._exponent, self.dtype, out=self._owners.own(flat))
        return self._owners.deliver(flat, out)


def _adding(add: Callable, most: np.ndarray) -> Operation:
    """The operation that sums one contribution of each rank, or none, by `add(sources, most, out)`."""

    def prepare(sources, out):
        return lambda: add(sources, most, out)

    return Operation(SUM.name, SUM.function, SUM.identity, prepare=prepare)


def _exact_sum(sources: list[np.ndarray], most: np.ndarray, out: np.ndarray) -> None:
    _native.exact_sum(sources, out)


def _fixed_sum(sources: list[np.ndarray], most: np.ndarray, out: np.ndarray) -> None:
    _native.fixed_sum(sources, int(most[0]), out)
