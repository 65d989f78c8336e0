"""The reducer that carries out a schedule over MPI point-to-point messages."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from kernels.allreduce.operations import Operation
from kernels.allreduce.reducer import Reducer
from kernels.allreduce.schedule import OWN, TOTAL, Round, Schedule, transfers

Steps = list[tuple[list[MPI.Request], list[tuple[list[np.ndarray], np.ndarray]]]]


class ScheduleReducer(Reducer):
    """Local contributions are added left to right, then the rounds of the schedule run.

    Everything is made once: a persistent request per message, and per sum a list of views to add.
    """

    def __init__(self, comm, ordering, shape, dtype, name, operation: Operation, schedule: Schedule):
        super().__init__(comm, ordering, shape, dtype, name)
        self._operation = operation
        self._own = np.empty(shape, dtype)
        self.nbytes = self._total.nbytes
        slots = {OWN: self._own.reshape(-1), TOTAL: self._total.reshape(-1)}
        self._steps = compile_rounds(self._comm, schedule, slots, self._requests)

    def _reduce(self, contributions):
        self._operation.fold(contributions, self._own)
        into, start, wait = self._operation.into, MPI.Prequest.Startall, MPI.Request.Waitall
        for requests, sums in self._steps:
            if requests:
                start(requests)
                wait(requests)
            for sources, out in sums:
                into(sources, out)
        return self._total


def compile_rounds(
    comm: MPI.Comm, schedule: Schedule, given: dict[int, np.ndarray], requests: list[MPI.Request]
) -> Steps:
    """This rank's rounds over the slots `given` (n,) and scratch: per round the requests to start and the sums.

    New persistent requests are also added to `requests`, for their owner to free.
    """
    rounds = schedule.program(comm.rank)
    n, dtype = len(given[TOTAL]), given[TOTAL].dtype
    slots = {
        slot: (np.empty(stop - start, dtype), start)
        for slot, (start, stop) in _spans(rounds, schedule, n).items()
    }
    slots |= {slot: (data, 0) for slot, data in given.items()}

    def view(slot: int, start: int, stop: int) -> np.ndarray:
        data, origin = slots[slot]
        return data[start - origin : stop - origin]

    steps: Steps = []
    for current in rounds:
        started = [
            make(view(t.slot, t.start, t.stop), t.peer, t.tag)
            for make, messages in ((comm.Recv_init, current.receives), (comm.Send_init, current.sends))
            for t in transfers(messages, n, schedule)
        ]
        requests.extend(started)
        sums = []
        for s in current.sums:
            start, stop = schedule.bounds(n, s.chunk)
            if start < stop:
                sums.append(([view(slot, start, stop) for slot in s.sources], view(s.into, start, stop)))
        if started or sums:
            steps.append((started, sums))
    return steps


def _spans(rounds: tuple[Round, ...], schedule: Schedule, n: int) -> dict[int, tuple[int, int]]:
    """The elements of each slot that are ever written, first and end: no more is stored."""
    spans: dict[int, tuple[int, int]] = {}
    for current in rounds:
        written = [(m.slot, m.chunk) for m in current.receives] + [(s.into, s.chunk) for s in current.sums]
        for slot, chunk in written:
            start, stop = schedule.bounds(n, chunk)
            first, last = spans.get(slot, (start, stop))
            spans[slot] = min(first, start), max(last, stop)
    return spans
