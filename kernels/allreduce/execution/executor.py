"""The reducer that carries out a schedule over MPI point-to-point messages.

Every message is a persistent request and every sum is prepared once, so that a call allocates nothing. Short vectors
are copied into memory of the reducer's own. Long ones are sent from where the caller has them and received where the
total is wanted: the requests of the last few places are kept. Long vectors go in segments, one behind the other, so
that one segment is added while the next one moves, and so that what has just come is still in the cache when it is
added.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from kernels import _native, exact
from kernels.allreduce import accumulate
from kernels.allreduce.execution.program import AHEAD, Memory, steps
from kernels.allreduce.execution.reducer import Reducer, as_bytes, free_requests
from kernels.allreduce.operations import COPY, Operation
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Schedule, Transfer, evenly
from kernels.guarantees import ChoiceError

COPIED_BYTES = 1 << 12  # up to which a copy costs less than looking up where the caller's memory is
SEGMENT_BYTES = 1 << 20  # of the vector, at least
PIECE_BYTES = 1 << 16  # of a chunk in a segment, at least: many ranks would send many small messages
MOST_SEGMENTS = 32
PLACES = 2  # of the caller's memory whose requests are kept, and which that keeps alive
# Up to which a library hands a message of a node over in one piece. One that is a little longer costs a handshake, two
# to three times as much as a few pieces do: measured with MPICH 5.0 and Open MPI 5.0.
EAGER_BYTES = {"MPICH": 8000, "Open MPI": 4000}
EAGER_PIECES = 3

View = Callable[[int, int, int], np.ndarray]


@dataclass(slots=True)
class Ready:
    """A step over fixed memory; `after` is the step before it of the same segment."""

    after: int
    requests: list[MPI.Request]
    sums: list[Callable[[], None]]


class ScheduleReducer(Reducer):
    """Local contributions are combined left to right, then the steps of the schedule run.

    A schedule over blocks takes each contribution by itself. `operation` is what the schedule combines by, if not by
    that of the reduction. `words`, `width` per element and of another type than `dtype`, are what the schedule moves
    and combines, if not the elements themselves.
    """

    def __init__(
        self,
        comm,
        reduction,
        name,
        schedule: Schedule,
        operation: Operation | None = None,
        words: np.ndarray | None = None,
        width: int = 1,
        total: tuple[int, ...] | None = None,
    ):
        super().__init__(comm, reduction, name, total)
        self._operation = operation or reduction.operation
        self._part = _part(reduction, comm.size, comm.rank)
        self._blocks = len(schedule.leaves(comm.rank)) if "owners" in reduction.entry.needs else None
        self._words = self._total if words is None else words
        self.nbytes = self._words.nbytes
        least = max(SEGMENT_BYTES, PIECE_BYTES * schedule.chunks)
        self._segments = min(max(self.nbytes // least, 1), MOST_SEGMENTS)
        self._steps = steps(schedule, comm.rank, self._total.size, width, self._segments)
        self._memory = Memory(self._steps, self._words.dtype)
        self._copied = words is not None or self.nbytes <= COPIED_BYTES
        count = 1 if self._blocks is None else self._blocks
        self._own = np.empty((count, *self._words.shape), self._words.dtype)
        # By address of contributions and total.
        self._places: dict[tuple[int, int], list[Ready]] = {}
        self._home = self._at(self._own, self._words) if self._copied else None
        self._flight: Flight | None = None

    def _at(self, own: np.ndarray, total: np.ndarray) -> list[Ready]:
        """The steps over the contributions `own` (k, *shape) and the memory of a total, made when first seen."""
        place = _native.address(own), _native.address(total)
        ready = self._places.get(place)
        if ready is None:
            if len(self._places) == PLACES:
                self._forget(self._places.pop(next(iter(self._places))))
            # Not `for row in own`: of shape (), that makes numbers, not views.
            rows = [own[i, ...].reshape(-1) for i in range(len(own))]
            ready = self._places[place] = self._bind(rows, total.reshape(-1))
        return ready

    def _bind(self, own: list[np.ndarray], total: np.ndarray) -> list[Ready]:
        ready = []
        for step in self._steps:
            view = self._memory.view(own, total, step.segment)
            requests = _requests(self._comm.Recv_init, step.receives, view)
            requests += _requests(self._comm.Send_init, step.sends, view)
            self._requests.extend(requests)
            sums = [
                self._operation.prepared(
                    [view(s, c.start, c.stop) for s in c.sources], view(c.into, c.start, c.stop)
                )
                for c in step.sums
            ]
            ready.append(Ready(step.after, requests, sums))
        return ready

    def _forget(self, ready: list[Ready]) -> None:
        gone = {id(request) for step in ready for request in step.requests}
        self._requests[:] = [request for request in self._requests if id(request) not in gone]
        free_requests([request for step in ready for request in step.requests])

    def _reduce(self, contributions):
        return self._reduce_into(contributions, self._total)

    def _reduce_into(self, contributions, out):
        return self._run(self._take(contributions, out), out)

    def _run(self, ready: list[Ready], out: np.ndarray) -> np.ndarray | None:
        if self._segments > 1:
            Flight(ready).advance(wait=True)
        else:
            start, wait = MPI.Prequest.Startall, MPI.Request.Waitall
            for step in ready:
                if step.requests:
                    start(step.requests)
                    wait(step.requests)
                for combine in step.sums:
                    combine()
        return self._deliver(out)

    def _begin(self, contributions, out):
        self._out = out
        self._flight = Flight(self._take(contributions, out))

    def _progress(self):
        return self._flight.advance(wait=False)

    def _end(self):
        self._flight.advance(wait=True)
        self._flight, out = None, self._out
        return self._deliver(out)

    def _take(self, contributions: np.ndarray, out: np.ndarray) -> list[Ready]:
        """The steps for these contributions, copied or where they are; `out` may be the memory of one of them."""
        self._require_blocks(contributions)
        own = self._own
        if self._blocks is None and len(contributions) != 1:
            self._operation.fold(contributions, own[0, ...])
        elif self._copied or not contributions.flags.c_contiguous:
            np.copyto(own, contributions)
        else:
            ready = self._places.get((_native.address(contributions), _native.address(out)))
            if ready is not None:
                return ready
            if self._across(contributions, out):
                np.copyto(own, contributions)
            else:
                own = contributions
        return self._home if self._copied else self._at(own, out)

    def _fitting(self, contributions, out):
        x = super()._fitting(contributions, out)
        self._require_blocks(x)
        return x

    def _require_blocks(self, contributions: np.ndarray) -> None:
        if self._blocks not in (None, len(contributions)):
            raise ValueError(
                f"{self} was planned for {self._blocks} blocks on this rank, got {len(contributions)} contributions"
            )

    def _across(self, contributions: np.ndarray, out: np.ndarray) -> bool:
        """Whether the total would lie across contributions, rather than elsewhere or in the very place of one."""
        into = _native.address(out) - _native.address(contributions)
        return -out.nbytes < into < contributions.nbytes and into % out.nbytes != 0

    def _deliver(self, out: np.ndarray) -> np.ndarray | None:
        if self._copied and out is not self._total:
            np.copyto(out, self._total)
        return out if self._part is None else self._part(out)

    def _check_ranks(self, total):
        if self._part is None:  # else there is nothing to compare
            super()._check_ranks(total)


class AccumulatingReducer(ScheduleReducer):
    """Contributions are loaded into words, and the words of the total are rounded once."""

    def __init__(self, comm, reduction, name, schedule):
        held = accumulate.get(reduction.accumulation, reduction.dtype, reduction.operation)
        # Zeros: of a reduce-scatter, what is never received is rounded too.
        words = np.zeros(math.prod(reduction.shape) * held.width, held.travels)
        super().__init__(comm, reduction, name, schedule, held.operation, words, held.width)
        self._accumulation = held

    def _take(self, contributions, out):
        self._require_blocks(contributions)
        if self._accumulation.propose is not None:
            most = self._accumulation.propose(contributions)
            self._comm.Allreduce(MPI.IN_PLACE, most, MPI.MAX)
            self._accumulation.agreed(most, self._comm.size)
        return self._load(contributions)

    def _load(self, contributions) -> list[Ready]:
        if self._blocks is None:
            self._accumulation.load(contributions, self._own[0])
        else:
            for i, words in enumerate(self._own):
                self._accumulation.load(contributions[i : i + 1], words)
        return self._home

    def sum_words(self, words: np.ndarray) -> np.ndarray:
        """As that of `ExactReducer`."""
        require_words(self, words)
        self._own[...] = 0
        if len(self._own):
            np.copyto(self._own[0], words.reshape(-1))
            exact.carry(self._own[0].reshape(-1, exact.WORDS))
        elif words.any():
            raise ValueError(f"{self} adds over blocks: this rank has none, and so no words but zeros")
        total = self._run(self._home, self._total)
        if self.checked:
            self._check_ranks(total)
        return total

    def _begin(self, contributions, out):
        self._require_blocks(contributions)
        self._out, self._flight = out, None
        if self._accumulation.propose is None:
            self._flight = Flight(self._load(contributions))
        else:
            self._most = self._accumulation.propose(contributions)
            self._agreement = self._comm.Iallreduce(MPI.IN_PLACE, self._most, MPI.MAX)

    def _progress(self):
        if self._flight is None and self._agreement.Test():
            self._fly()
        return self._flight is not None and super()._progress()

    def _end(self):
        if self._flight is None:
            self._agreement.Wait()
            self._fly()
        return super()._end()

    def _fly(self) -> None:
        self._accumulation.agreed(self._most, self._comm.size)
        self._flight = Flight(self._load(self._started[0]))

    def _deliver(self, out):
        self._accumulation.store(self._words, out)
        return out if self._part is None else self._part(out)


class GatheringReducer(ScheduleReducer):
    """The contributions of all ranks, (size, *shape), of which each rank brings one."""

    def __init__(self, comm, reduction, name, schedule: Schedule):
        super().__init__(comm, reduction, name, schedule, COPY, total=(comm.size, *reduction.shape))

    def _take(self, contributions, out):
        if len(contributions) != 1:
            raise ValueError(f"{self} gathers one contribution of each rank, got {len(contributions)}")
        # The contribution lies where it is wanted: then it is sent from there, and need not be copied again.
        out = self._total if self._copied else out
        np.copyto(out[self._comm.rank, ...], contributions[0])
        return self._at(out[np.newaxis], out)


def _part(reduction: Reduction, size: int, rank: int) -> Callable[[np.ndarray], np.ndarray | None] | None:
    """A function of the total: what the caller gets of it on this rank. None where that is all of it on all ranks."""
    if reduction.collective == "reduce":
        return lambda total: total if rank == reduction.root else None
    if reduction.collective == "reduce-scatter":
        return lambda total: total.reshape(-1)[slice(*evenly(total.size, size, rank))]
    return None


class Flight:
    """One reduction under way: steps begin in order, as soon as what they need is there and few are under way."""

    def __init__(self, ready: Sequence[Ready]):
        self._ready = ready
        self._begun = self._done = 0
        self._begin()

    def _begin(self) -> None:
        while self._begun < min(len(self._ready), self._done + AHEAD):
            step = self._ready[self._begun]
            if step.after >= self._done:
                return
            if step.requests:
                MPI.Prequest.Startall(step.requests)
            self._begun += 1

    def advance(self, wait: bool) -> bool:
        """Go on as far as messages have come, or with `wait` to the end; whether the end is reached."""
        while self._done < len(self._ready):
            step = self._ready[self._done]
            if wait:
                MPI.Request.Waitall(step.requests)
            elif not MPI.Request.Testall(step.requests):
                return False
            for combine in step.sums:
                combine()
            self._done += 1
            self._begin()
        return True


def require_words(reducer: Reducer, words: np.ndarray) -> None:
    """Raise for words that cannot be summed: RuntimeError after `free()`, ChoiceError for another accumulation than
    `exact`, ValueError for another shape or type."""
    reducer._require_alive()
    if reducer.reduction.accumulation != "exact":
        raise ChoiceError(f"{reducer}: words of a superaccumulator need accumulation 'exact'")
    if words.shape != (*reducer.shape, exact.WORDS) or words.dtype != np.int64:
        raise ValueError(
            f"{reducer} expects words int64 {(*reducer.shape, exact.WORDS)}, as kernels.exact.zeros makes them, "
            f"got {words.dtype} {words.shape}"
        )


def _requests(make: Callable, transfers: Sequence[Transfer], view: View) -> list[MPI.Request]:
    """Both ends cut a message into the same pieces, with tags of their own: MPI may start a group in any order."""
    requests = []
    for t in transfers:
        message = as_bytes(view(t.slot, t.start, t.stop))
        pieces = _pieces(message.nbytes)
        cuts = [message.nbytes * i // pieces for i in range(pieces + 1)]
        for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
            requests.append(make(message[start:stop], t.peer, t.tag * EAGER_PIECES + i))
    return requests


def _pieces(nbytes: int) -> int:
    eager = EAGER_BYTES.get(MPI.get_vendor()[0], nbytes)
    pieces = max(math.ceil(nbytes / eager), 1) if eager else 1
    return pieces if pieces <= EAGER_PIECES else 1
