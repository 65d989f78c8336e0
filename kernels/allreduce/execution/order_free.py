"""How `direct` carries out the accumulation `exact`, whose totals do not depend on any order.

If no rank brings more than one contribution, the contributions themselves travel, and a rank with the contributions of
all ranks adds them exactly (kernels/native/contributions_exact.cpp). A rank first adds several contributions without
error, to few float64 numbers per element with the same sum (`expansion`):

    records   shortest vectors: each rank sends these numbers to all others, in one all-gather
    ones      short vectors: each rank sends its one contribution to all others, or a mark that it brings several
    direct    longer vectors: each rank sends chunks to their owners; an owner adds, and sends the sum to all
    sums      if a rank brings several: each rank sends the numbers that stand for its sum to the owners
    words     elements that these numbers cannot hold: the library adds them as words of a superaccumulator

All ranks see the same records or the same total, or first agree by MAX, so that all take the same path.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from mpi4py import MPI

from kernels import _native
from kernels.allreduce.accumulate import mark, marked
from kernels.allreduce.execution.executor import ScheduleReducer, require_words
from kernels.allreduce.execution.expansion import PARTS, Expansion, WordsExpansion, settle, words_of
from kernels.allreduce.execution.handover import Expanded
from kernels.allreduce.execution.library import all_gather, allreduce
from kernels.allreduce.execution.owners import Owners
from kernels.allreduce.execution.reducer import Reducer, as_bytes
from kernels.allreduce.operations import SUM, Operation
from kernels.environment import guarded

RECORD_BYTES = 1 << 15  # of all ranks' contributions: beyond, all to all costs more than two rounds
# Most elements for which a record has room for sums of several contributions, of up to PARTS numbers each.
RECORD_ELEMENTS = 16


class ExactReducer(Reducer):
    """The total is the exact sum of all contributions, rounded once to nearest even, element by element.

    A record is float64 (PARTS, n) or, for longer vectors, one contribution. For vectors without records, ranks first
    agree on the number of rows that stand for the sum of a rank's contributions: 0 if no rank brings more than one,
    which then travels as it is.
    """

    def __init__(self, comm, reduction, name):
        super().__init__(comm, reduction, name)
        comm, requests = self._comm, self._requests
        self._n = self._total.size
        self._flat = self._total.reshape(-1)
        self._records_parts = self._n <= RECORD_ELEMENTS and comm.size * PARTS * 8 * self._n <= RECORD_BYTES
        self._records_ones = not self._records_parts and comm.size * self._total.nbytes <= RECORD_BYTES
        self._sum = Expansion(np.zeros((PARTS, self._n)))
        self._brought: Expansion | None = None
        self._mark = mark(self.dtype)
        self._owners = Owners(comm, self._n)
        self._mine, self._most = np.zeros(1, np.int32), np.zeros(1, np.int32)
        if self._records_parts or self._records_ones:
            self._record = self._sum.parts if self._records_parts else np.zeros((1, self._n), self.dtype)
            self._rows = np.zeros((comm.size * len(self._record), self._n), self._record.dtype)
            own = as_bytes(self._record)  # MPI knows no bfloat16
            about = comm, own, as_bytes(self._rows).reshape(comm.size, own.size), requests
            self._exchange, self._begin_exchange = all_gather(*about)
            self._in_record = PARTS  # rows that are not zero
            self._first = self._record[:1].reshape(1, *self.shape)
            self.nbytes = self._record.nbytes
        else:
            self._exchange, self._begin_exchange = allreduce(comm, self._mine, self._most, MPI.MAX, requests)
            flat = replace(reduction, shape=self._n, accumulation="working", check=False)
            schedule = reduction.entry.schedule(comm.size)
            self._direct = ScheduleReducer(comm, flat, "", schedule, EXACT_SUM)
            self.nbytes = self._total.nbytes + self._mine.nbytes

    def _bring(self, contributions: np.ndarray) -> None:
        """Writes this rank's numbers to its record or, for a long vector, its number of rows to `self._mine`."""
        if self._records_parts and len(contributions) == 1:
            np.copyto(self._first, contributions)
            if self._in_record > 1:
                self._fill_record(1)
            self._brought = None
        elif self._records_parts or len(contributions) > 1:
            self._sum.clear()
            self._sum.add(np.ascontiguousarray(contributions).reshape(len(contributions), self._n))
            self._bring_sum(self._sum)
        else:
            self._brought, self._mine[0] = None, 0
            if self._records_ones:
                self._record[0] = contributions.reshape(-1) if len(contributions) else 0

    def _bring_sum(self, total: Expansion) -> None:
        """As `_bring`, for a sum of several contributions."""
        self._brought, self._mine[0] = total, max(total.used, 1)
        if self._records_ones:
            np.copyto(self._record[0, :1], self._mark)
        elif self._records_parts:
            rows = total.rows()
            if total is not self._sum:
                np.copyto(self._record[: len(rows)], rows)
            self._fill_record(len(rows))

    def _fill_record(self, rows: int) -> None:
        """Zeroes the rows of the record behind the first `rows`, which were written."""
        if rows < self._in_record:
            self._record[rows : self._in_record] = 0
        self._in_record = rows

    def _reduce(self, contributions):
        # As `_reduce_into`, inlined: a call would show in the time of a short vector.
        self._bring(contributions)
        self._exchange()
        return self._complete(contributions, self._total)

    def _reduce_into(self, contributions, out):
        self._bring(contributions)
        self._exchange()
        return self._complete(contributions, out)

    def _complete(self, contributions, out):
        """The total, after the exchange of records or of the number of rows (`self._most`)."""
        if self._records_parts or self._records_ones:
            if _native.exact_sum(self._rows, self._flat, True):
                self._complete_marked(contributions)
            if out is not self._total:
                np.copyto(out, self._total)
        elif self._one_each():
            self._direct(contributions.reshape(len(contributions), self._n), out.reshape(-1))
        else:
            self._add_sums(contributions, out.reshape(-1))
        return out

    def _complete_marked(self, contributions: np.ndarray) -> None:
        """Sums the elements again that the records could not hold."""
        if self._records_parts:
            words = self._brought.words_of if self._brought else words_of(contributions.reshape(-1, self._n))
            settle(self._comm, self._flat, words)
        elif len(marked(self._flat)):
            self._comm.Allreduce(self._mine, self._most, MPI.MAX)
            self._add_sums(contributions, self._flat)

    def _one_each(self) -> bool:
        """Whether no rank brings more than one contribution, so that `direct` takes contributions as they are."""
        return self._most.item(0) == 0

    def _add_sums(self, contributions: np.ndarray, flat: np.ndarray) -> None:
        """Adds the numbers that stand for the sums of the ranks' contributions."""
        total = self._brought
        if total is None:  # at most one contribution of this rank, which would have travelled as it is
            total = self._sum
            total.clear()
            total.add(np.ascontiguousarray(contributions).reshape(len(contributions), self._n))
        needed = max(int(self._most[0]), 1)
        parts = self._owners.collect(total.rows(needed))
        own = self._owners.own(flat)
        _native.exact_sum(parts.reshape(self._comm.size * needed, own.size), own, True)
        self._owners.deliver(flat, flat)
        settle(self._comm, flat, total.words_of)

    def _begin(self, contributions, out):
        self._bring(contributions)
        self._request, self._flying = (
            self._requests.begun(self._begin_exchange(), self._begin_exchange),
            False,
        )

    def _progress(self):
        if not self._request.Test():
            return False
        if self._records_parts or self._records_ones:
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

    def _make_handover(self):
        # A single contribution travels as it is.
        several = len(self.blocks or ()) > 1
        return (
            Expanded(str(self), self.blocks, self.shape, self.dtype) if several else super()._make_handover()
        )

    def _reduce_added(self, added):
        return self._reduce_sum(added.sum) if isinstance(added, Expanded) else super()._reduce_added(added)

    def _reduce_sum(self, total: Expansion) -> np.ndarray:
        self._bring_sum(total)
        self._exchange()
        return self._complete(np.empty((0, *self.shape), self.dtype), self._total)

    @guarded
    def sum_words(self, words: np.ndarray) -> np.ndarray:
        """Returns the total over all ranks of sums that the callers accumulated exactly.

        `words`: int64 (*shape, WORDS), left as they are. Raises ValueError for another shape or type.
        """
        require_words(self, words)
        rows = np.ascontiguousarray(words).reshape(self._n, -1)
        total = self._reduce_sum(WordsExpansion(np.empty((PARTS, self._n)), rows))
        if self.checked:
            self._check_ranks(total)
        return total

    def _give_back(self):
        if not (self._records_parts or self._records_ones):
            self._direct.free()
        super()._give_back()


def _prepare(sources: list[np.ndarray], out: np.ndarray):
    return lambda: _native.exact_sum(sources, out)


# For at most one contribution of each rank.
EXACT_SUM = Operation(SUM.name, SUM.function, SUM.identity, prepare=_prepare)
