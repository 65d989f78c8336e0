"""The reducer that carries out a schedule over MPI point-to-point messages.

Short vectors are copied into memory of the reducer's own, for which every request is persistent and every sum is
prepared once: a call allocates nothing. Long vectors are sent from where the caller has them and received where the
total is wanted. They go in segments, one behind the other, so that one segment is added while the next one moves, and
so that what has just come is still in the cache when it is added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from kernels.allreduce.operations import Operation
from kernels.allreduce.program import AHEAD, Memory, Step, steps
from kernels.allreduce.reducer import Reducer
from kernels.allreduce.schedule import Schedule, Transfer

SHORT_BYTES = 1 << 16  # up to which a copy costs less than new requests
SEGMENT_BYTES = 1 << 20  # of the vector, at least
MOST_SEGMENTS = 32

View = Callable[[int, int, int], np.ndarray]


class ScheduleReducer(Reducer):
    """Local contributions are combined left to right, then the steps of the schedule run.

    A schedule over blocks takes each contribution by itself.
    """

    def __init__(self, comm, ordering, shape, dtype, name, operation: Operation, schedule: Schedule):
        super().__init__(comm, ordering, shape, dtype, name)
        self._operation = operation
        self._blocks = len(schedule.leaves(comm.rank)) if "owners" in ordering.needs else None
        self.nbytes = self._total.nbytes
        short = self.nbytes <= SHORT_BYTES
        segments = 1 if short else min(max(self.nbytes // SEGMENT_BYTES, 1), MOST_SEGMENTS)
        self._steps = steps(schedule, comm.rank, self._total.size, segments=segments)
        self._memory = Memory(self._steps, dtype)
        self._own = np.empty((1 if self._blocks is None else self._blocks, *shape), dtype) if short else None
        self._ready: list[Ready] = []
        if short:
            self._ready = self._over(self._own, self._total, persistent=True)
        self._flight: Flight | None = None

    def _over(self, own: np.ndarray, total: np.ndarray, persistent: bool) -> list[Ready]:
        """The steps over the contributions `own` (k, *shape) and the memory of a total."""
        rows, total, ready = list(own.reshape(len(own), -1)), total.reshape(-1), []
        for step in self._steps:
            view = self._memory.view(rows, total, step.segment)
            sums = [
                self._operation.prepared(
                    [view(s, c.start, c.stop) for s in c.sources], view(c.into, c.start, c.stop)
                )
                for c in step.sums
            ]
            if persistent:
                requests = _requests(self._comm.Recv_init, step.receives, view)
                requests += _requests(self._comm.Send_init, step.sends, view)
                self._requests.extend(requests)
                ready.append(Ready(step, view, requests, sums))
            else:
                ready.append(Ready(step, view, None, sums))
        return ready

    def _reduce(self, contributions):
        return self._reduce_into(contributions, self._total)

    def _reduce_into(self, contributions, out):
        if not self._ready:
            self._begin(contributions, out)
            return self._end()
        self._copy(contributions, self._own)
        start, wait = MPI.Prequest.Startall, MPI.Request.Waitall
        for step in self._ready:
            if step.requests:
                start(step.requests)
                wait(step.requests)
            for combine in step.sums:
                combine()
        return self._delivered(out)

    def _begin(self, contributions, out):
        if self._ready:
            self._copy(contributions, self._own)
            ready = self._ready
        else:
            ready = self._over(self._where_it_is(contributions, out), out, persistent=False)
        self._out = out
        self._flight = Flight(self._comm, ready)

    def _progress(self):
        return self._flight.advance(wait=False)

    def _end(self):
        self._flight.advance(wait=True)
        self._flight, out = None, self._out
        return self._delivered(out)

    def _copy(self, contributions: np.ndarray, own: np.ndarray) -> None:
        if self._blocks is None:
            self._operation.fold(contributions, own[0, ...])
        else:
            self._require_blocks(contributions)
            np.copyto(own, contributions)

    def _where_it_is(self, contributions: np.ndarray, out: np.ndarray) -> np.ndarray:
        """The contributions themselves if messages can leave from there; else a copy, (1, *shape) or (k, *shape).

        They cannot where they lie across the memory of the total; in the very same place they can.
        """
        if self._blocks is not None:
            self._require_blocks(contributions)
        elif len(contributions) != 1:
            own = np.empty((1, *self.shape), self.dtype)
            self._operation.fold(contributions, own[0, ...])
            return own
        whole = contributions.flags.c_contiguous
        places = [row.ctypes.data for row in contributions] if whole and out.size else []
        if whole and (out.ctypes.data in places or not np.may_share_memory(contributions, out)):
            return contributions
        return np.array(contributions, order="C")

    def _require_blocks(self, contributions: np.ndarray) -> None:
        if len(contributions) != self._blocks:
            raise ValueError(
                f"{self} was planned for {self._blocks} blocks on this rank, got {len(contributions)} contributions"
            )

    def _delivered(self, out: np.ndarray) -> np.ndarray:
        if self._ready and out is not self._total:
            np.copyto(out, self._total)
        return out


@dataclass(slots=True)
class Ready:
    """A step with the memory it works on; `requests` persist, or are None and made when the step begins."""

    step: Step
    view: View
    requests: list[MPI.Request] | None
    sums: list[Callable[[], None]]

    def begin(self, comm: MPI.Comm) -> list[MPI.Request]:
        """Start the messages."""
        if self.requests is None:
            requests = _requests(comm.Irecv, self.step.receives, self.view)
            return requests + _requests(comm.Isend, self.step.sends, self.view)
        if self.requests:
            MPI.Prequest.Startall(self.requests)
        return self.requests


class Flight:
    """One reduction under way: steps begin in order, as soon as what they need is there and few are under way."""

    def __init__(self, comm: MPI.Comm, ready: Sequence[Ready]):
        self._comm, self._ready = comm, ready
        self._begun: list[list[MPI.Request]] = []
        self._done = 0
        self._begin()

    def _begin(self) -> None:
        while len(self._begun) < min(len(self._ready), self._done + AHEAD):
            step = self._ready[len(self._begun)]
            if step.step.after >= self._done:
                return
            self._begun.append(step.begin(self._comm))

    def advance(self, wait: bool) -> bool:
        """Go on as far as messages have come, or with `wait` to the end; whether the end is reached."""
        while self._done < len(self._ready):
            requests = self._begun[self._done]
            if wait:
                MPI.Request.Waitall(requests)
            elif not MPI.Request.Testall(requests):
                return False
            for combine in self._ready[self._done].sums:
                combine()
            self._done += 1
            self._begin()
        return True


def _requests(make: Callable, transfers: Sequence[Transfer], view: View) -> list[MPI.Request]:
    # As bytes: MPI knows no bfloat16.
    return [make(view(t.slot, t.start, t.stop).view(np.uint8), t.peer, t.tag) for t in transfers]
