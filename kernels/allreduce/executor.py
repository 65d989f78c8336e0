"""The reducer that carries out a schedule over MPI point-to-point messages."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from kernels.allreduce.arithmetic import additions, fold
from kernels.allreduce.reducer import Reducer
from kernels.allreduce.schedule import Round, Schedule, bounds, transfers

Steps = list[tuple[list[MPI.Request], list[tuple[np.ndarray, ...]]]]


class ScheduleReducer(Reducer):
    """Local contributions are added left to right, then the rounds of the schedule run.

    Everything is made once: a persistent request per message, and per sum a list of views to add.
    """

    def __init__(self, comm, ordering, shape, dtype, name):
        super().__init__(comm, ordering, shape, dtype, name)
        self.nbytes = self._total.nbytes
        schedule = ordering.schedule(comm.size)
        self._steps = compile_rounds(self._comm, schedule, self._total.reshape(-1), self._requests)

    def _reduce(self, contributions):
        fold(contributions, self._total)
        add, start, wait = np.add, MPI.Prequest.Startall, MPI.Request.Waitall
        for requests, sums in self._steps:
            if requests:
                start(requests)
                wait(requests)
            for a, b, out in sums:
                add(a, b, out)
        return self._total


def compile_rounds(comm: MPI.Comm, schedule: Schedule, own: np.ndarray, requests: list) -> Steps:
    """This rank's rounds over slot 0 = `own` (n,): per round the requests to start and the additions to make.

    New persistent requests are also added to `requests`, for their owner to free.
    """
    rounds = schedule.program(comm.rank)
    n, chunks = len(own), schedule.chunks
    slots = _slots(rounds, own, chunks)
    longest = max((bounds(n, chunks, s.chunk) for r in rounds for s in r.sums), key=_length, default=(0, 0))
    spare = np.empty(_length(longest), own.dtype)

    def view(slot: int, start: int, stop: int) -> np.ndarray:
        data, origin = slots[slot]
        return data[start - origin : stop - origin]

    steps: Steps = []
    for current in rounds:
        started = []
        for peer, tag, slot, start, stop in transfers(current.receives, n, chunks):
            started.append(comm.Recv_init(view(slot, start, stop), peer, tag))
        for peer, tag, slot, start, stop in transfers(current.sends, n, chunks):
            started.append(comm.Send_init(view(slot, start, stop), peer, tag))
        requests.extend(started)
        sums = []
        for s in current.sums:
            start, stop = bounds(n, chunks, s.chunk)
            if start < stop:
                views = {slot: view(slot, start, stop) for slot in {s.into, *s.sources}}
                sums += additions([views[slot] for slot in s.sources], views[s.into], spare[: stop - start])
        if started or sums:
            steps.append((started, sums))
    return steps


def _length(cut: tuple[int, int]) -> int:
    return cut[1] - cut[0]


def _slots(rounds: tuple[Round, ...], own: np.ndarray, chunks: int) -> dict[int, tuple[np.ndarray, int]]:
    """Storage of each slot, no more than the span of the chunks it ever holds, and its first element."""
    spans: dict[int, tuple[int, int]] = {}
    for current in rounds:
        written = [(m.slot, m.chunk) for m in current.receives] + [(s.into, s.chunk) for s in current.sums]
        for slot, chunk in written:
            start, stop = bounds(len(own), chunks, chunk)
            first, last = spans.get(slot, (start, stop))
            spans[slot] = min(first, start), max(last, stop)
    storage = {slot: (np.empty(_length(span), own.dtype), span[0]) for slot, span in spans.items()}
    storage[0] = (own, 0)
    return storage
