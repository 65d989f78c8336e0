"""The reducers over a lossy wire that encode once on each of two hops; `hops` has the one that encodes at every hop.

`kernels.allreduce.coding` has the rules. All messages have a length that is known beforehand, and persistent requests
over memory of the reducer. A reduction is a generator of requests to wait for. It drives the blocking call as well as
`start`, `progress` and `finish`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from mpi4py import MPI

from kernels import _native
from kernels.allreduce import accumulate
from kernels.allreduce.coding import part_of
from kernels.allreduce.execution.reducer import Reducer
from kernels.guarantees import ChoiceError
from kernels.wires.cells import Cells

Requests = Sequence[MPI.Request]


class CodedReducer(Reducer):
    """Base class of the reducers over a lossy wire.

    `counts`: how many contributions every rank encodes, one by one (`apart`) or as their sum; None where it encodes
    partial sums. A subclass implements `_stages(contributions, out)`, which fills `out` (n,).
    """

    def __init__(self, comm, reduction, name, counts: Sequence[int] | None = None, apart: bool = False):
        super().__init__(comm, reduction, name)
        self._codec, self._cells = reduction.coding.codec, reduction.cells
        self._held = accumulate.get(reduction.accumulation, reduction.dtype, reduction.operation)
        self._counts, self._apart = counts, apart
        self.nbytes = self._codec.nbytes(self._cells)
        self._flight: Iterator[Requests] | None = None
        self._awaited: Requests = ()
        self._kept: slice | None = (
            None  # the part of the total whose encoding error this rank keeps; None: the whole
        )
        self._feedback = bool(reduction.coding.feedback and counts)
        rows, n = (counts[comm.rank], self._cells.n) if counts and self._feedback else (0, 0)
        self._lost, self._lost_of_total = np.zeros((rows, n), np.float32), np.zeros(n, np.float32)

    def lost(self) -> tuple[np.ndarray, np.ndarray]:
        """Returns the encoding errors that are to be added the next time: those of this rank's contributions, float32
        (k, n), and those of the total, float32 (n,), on all ranks. Collective.

        Under an accumulation that does not depend on order, row i belongs to this rank's i-th block; else the one row
        belongs to the sum of all blocks. Raises ChoiceError without feedback.
        """
        self._require_feedback()
        if self._kept is None:
            return self._lost.copy(), self._lost_of_total.copy()
        total = np.zeros_like(self._lost_of_total)
        total[self._kept] = self._lost_of_total[self._kept]
        self._comm.Allreduce(MPI.IN_PLACE, total.view(np.int32), MPI.BOR)
        return self._lost.copy(), total

    def restore_lost(self, contributions: np.ndarray, total: np.ndarray) -> None:
        """Continues from the errors of `lost`. Raises ChoiceError without feedback, ValueError for other shapes."""
        self._require_feedback()
        for kept, given in ((self._lost, contributions), (self._lost_of_total, total)):
            if given.shape != kept.shape:
                raise ValueError(f"{self}: encoding errors have shape {kept.shape}, not {given.shape}")
            np.copyto(kept, given)

    def use_lost(self, contributions: np.ndarray, total: np.ndarray) -> slice | None:
        """As `restore_lost`, and keeps errors in these arrays from now on. Returns the elements of the total whose
        error this rank keeps; None for all."""
        self.restore_lost(contributions, total)
        self._lost, self._lost_of_total = contributions, total
        return self._kept

    def _require_feedback(self) -> None:
        self._require_alive()
        if not self._feedback:
            raise ChoiceError(
                f"{self}: wire {self.reduction.wire!r} keeps no encoding errors: add feedback=on"
            )

    def _stages(self, contributions: np.ndarray, out: np.ndarray) -> Iterator[Requests]:
        """Computes as far as possible, then yields the requests that the next part waits for, until done."""
        raise NotImplementedError

    def _reduce(self, contributions):
        return self._reduce_into(contributions, self._total)

    def _reduce_into(self, contributions, out):
        for requests in self._stages(self._rows(contributions), out.reshape(-1)):
            self._calls.wait(requests)
        return out

    def _begin(self, contributions, out):
        self._out = out
        self._flight = self._stages(self._rows(contributions), out.reshape(-1))
        self._awaited = next(self._flight, ())

    def _progress(self):
        while self._flight is not None:
            if not self._calls.test(self._awaited):
                return False
            self._go_on()
        return True

    def _end(self):
        while self._flight is not None:
            self._calls.wait(self._awaited)
            self._go_on()
        return self._out

    def _go_on(self) -> None:
        assert self._flight is not None
        awaited = next(self._flight, None)
        if awaited is None:
            self._flight = None
        self._awaited = awaited or ()

    def _fitting(self, contributions, out):
        x = super()._fitting(contributions, out)
        self._require_count(x)
        return x

    def _require_count(self, contributions: np.ndarray) -> None:
        if not self._apart or self._counts is None:
            return
        planned, given = self._counts[self._comm.rank], len(contributions)
        if given != planned:
            raise ValueError(
                f"{self} was planned for {planned} contributions of this rank, got {given}: they are encoded one by "
                "one, so pass plan blocks=, the numbers of this rank's blocks"
            )

    def _rows(self, contributions: np.ndarray) -> np.ndarray:
        """The contributions (k, n) that are encoded."""
        x = np.ascontiguousarray(contributions).reshape(len(contributions), self._cells.n)
        if self._apart or len(x) == 1:
            self._require_count(x)
            return x
        words = np.empty(x.shape[1] * self._held.width, self._held.travels)
        total = np.empty((1, x.shape[1]), np.float32)
        self._held.load(x, words)
        self._held.store(words, total)
        return total

    def _add(self, decoded: np.ndarray, divisor: int, total: np.ndarray) -> None:
        """Writes the sum of decoded contributions (k, n), from the first to the last, in the accumulation, divided by
        `divisor`, to `total` (n,)."""
        if self._held.name == "exact" and len(decoded):
            if divisor == 1:
                _native.exact_sum(list(decoded), total)
            else:
                _native.exact_mean(list(decoded), divisor, total)
            return
        if divisor != 1:  # in float64, whatever the accumulation: no sum of float32 is too large
            with np.errstate(all="ignore"):
                np.copyto(total, np.add.reduce(decoded, 0, np.float64) / divisor, "same_kind")
            return
        words = np.empty(total.size * self._held.width, self._held.travels)
        self._held.load(decoded, words)
        self._held.store(words, total)

    def _replace(self, x: np.ndarray, cells: Cells, data: np.ndarray) -> None:
        """Writes the encoded `x` to `data`, and replaces `x` by its decoded value."""
        self._codec.encode(x, cells, data)
        self._codec.decode(data, cells, x)

    def _encode(self, x: np.ndarray, index: int, where: slice, cells: Cells, data: np.ndarray) -> None:
        """Encodes elements `where` of contribution `index`, with their kept error."""
        if self._feedback:
            self._with_lost(x[where], self._lost[index, where], cells, data)
        else:
            self._codec.encode(x[where], cells, data)

    def _encode_total(self, total: np.ndarray, where: slice, cells: Cells, data: np.ndarray) -> None:
        """Encodes elements `where` of the total, and replaces them by their decoded value."""
        if self._feedback:
            total[...] = self._with_lost(total, self._lost_of_total[where], cells, data)
        else:
            self._replace(total, cells, data)

    def _with_lost(self, x: np.ndarray, lost: np.ndarray, cells: Cells, data: np.ndarray) -> np.ndarray:
        """Encodes x + lost; `lost` becomes the error of this encoding. Returns the decoded value."""
        np.add(x, lost, out=lost)
        self._codec.encode(lost, cells, data)
        decoded = np.empty_like(lost)
        self._codec.decode(data, cells, decoded)
        with np.errstate(invalid="ignore"):
            np.subtract(lost, decoded, out=lost)
        lost[~np.isfinite(lost)] = 0  # an infinity or NaN reached all ranks, and would stay here for ever
        return decoded


class OnceReducer(CodedReducer):
    """Every rank sends each part of its contributions to the part's owner. The owner decodes and adds them, and sends
    the encoded total to all. Parts have equally many cells, or one more or fewer."""

    def __init__(self, comm, reduction, name, counts, apart):
        super().__init__(comm, reduction, name, counts, apart)
        size, rank, nbytes, dup = comm.size, comm.rank, self._codec.nbytes, self._comm
        self._sources = sum(counts)
        self._parts = [part_of(self._cells, size, q) for q in range(size)]
        ends = [0, *itertools.accumulate(part.n for part in self._parts)]
        self._slices = [slice(a, b) for a, b in itertools.pairwise(ends)]
        self._kept = self._slices[rank]
        own = self._parts[rank]
        self._away = [np.empty((counts[rank], nbytes(part)), np.uint8) for part in self._parts]
        self._came = [np.empty((count, nbytes(own)), np.uint8) for count in counts]
        self._came[rank] = self._away[rank]
        self._bytes = [np.empty(nbytes(part), np.uint8) for part in self._parts]  # of the total
        others = [(rank + i) % size for i in range(1, size)]
        self._receives = {q: dup.Recv_init(self._came[q], q, 0) for q in others if self._came[q].size}
        self._sends = {q: dup.Send_init(self._away[q], q, 0) for q in others if self._away[q].size}
        self._gathers = {q: dup.Recv_init(self._bytes[q], q, 1) for q in others if self._bytes[q].size}
        self._spreads = [dup.Send_init(self._bytes[rank], q, 1) for q in others if self._bytes[rank].size]
        for kept in (self._receives.values(), self._sends.values(), self._gathers.values(), self._spreads):
            self._requests += kept
        self._divisor = reduction.divisor
        self._adds_as_it_decodes = self._held.name == "working" and self._divisor == 1
        self._decoded = np.empty((0 if self._adds_as_it_decodes else self._sources, own.n), np.float32)

    def _stages(self, contributions, out):
        rank, size = self._comm.rank, self._comm.size
        mine, total = self._parts[rank], out[self._slices[rank]]
        self._calls.start([*self._receives.values(), *self._gathers.values()])
        for q in ((rank + i) % size for i in range(1, size + 1)):
            for i, x in enumerate(contributions):
                self._encode(x, i, self._slices[q], self._parts[q], self._away[q][i])
            if q in self._sends:
                self._sends[q].Start()
        first = 0
        total.fill(0)  # so that a sum of zeros is +0
        for q in range(size):
            if q in self._receives:
                yield [self._receives[q]]
            self._take(self._came[q], first, mine, total)
            first += len(self._came[q])
        if not self._adds_as_it_decodes:
            self._add(self._decoded, self._divisor, total)
        self._encode_total(total, self._slices[rank], mine, self._bytes[rank])
        self._calls.start(self._spreads)
        for q, request in self._gathers.items():
            yield [request]
            self._codec.decode(self._bytes[q], self._parts[q], out[self._slices[q]])
        yield [*self._sends.values(), *self._spreads]

    def _take(self, came: np.ndarray, first: int, cells: Cells, total: np.ndarray) -> None:
        """Decodes the contributions of one rank; lower ranks sent `first` contributions."""
        for i, data in enumerate(came, first):
            if not self._adds_as_it_decodes:
                self._codec.decode(data, cells, self._decoded[i])
            else:
                self._codec.decode_add(data, cells, total)


class WordsReducer(CodedReducer):
    """Sends the sum of a rank's encoded contributions where it takes fewer bytes than these. The sum travels as words
    of the accumulation, so the bits are the same; every rank encodes the same total. `plan` makes the inner reducer.
    """

    def __init__(self, comm, reduction, name, counts, apart, plan: Callable[..., Reducer]):
        super().__init__(comm, reduction, name, counts, apart)
        n = self._cells.n
        self._sum = plan(self._comm, replace(reduction, wire="as is", tensors=None, shape=n, check=False))
        self._data = np.empty(self.nbytes, np.uint8)
        self._decoded = np.empty((counts[comm.rank], n), np.float32)

    def _reduce_into(self, contributions, out):
        self._sum(self._coded(contributions), out.reshape(-1))
        return self._rounded(out)

    def _begin(self, contributions, out):
        self._out = out
        self._sum.start(self._coded(contributions), out.reshape(-1))

    def _progress(self):
        return self._sum.progress()

    def _end(self):
        self._sum.finish()
        return self._rounded(self._out)

    def _coded(self, contributions: np.ndarray) -> np.ndarray:
        everything = slice(0, self._cells.n)
        for i, x in enumerate(self._rows(contributions)):
            self._encode(x, i, everything, self._cells, self._data)
            self._codec.decode(self._data, self._cells, self._decoded[i])
        return self._decoded

    def _rounded(self, out: np.ndarray) -> np.ndarray:
        self._encode_total(out.reshape(-1), slice(0, self._cells.n), self._cells, self._data)
        return out

    def _give_back(self):
        self._sum.free()
        super()._give_back()
