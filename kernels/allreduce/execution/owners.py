"""Chunk q of a vector belongs to rank q: all ranks send their part of it to this owner, who sends its result to all.
`direct` in steps of its own, for data to the owners that differ in type or length from the results."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from kernels.allreduce.execution.reducer import as_bytes
from kernels.allreduce.execution.requests import calls_of
from kernels.allreduce.schedule import evenly

COLLECT, DELIVER = 1, 2  # tags


class Owners:
    """The chunks of a vector of n elements over a communicator that nothing else uses meanwhile."""

    def __init__(self, comm: MPI.Comm, n: int):
        self._comm = comm
        self._bounds = [evenly(n, comm.size, rank) for rank in range(comm.size)]
        # Starting behind the own rank, so that not all send to rank 0 first.
        self._others = [(comm.rank + i) % comm.size for i in range(1, comm.size)]
        self._parts = np.empty(0)

    def collect(self, rows: np.ndarray) -> np.ndarray:
        """Sends `rows` (m, n, ...) to the owners of their chunks. Returns all ranks' rows of this rank's chunk, (size,
        m, own, ...), valid until the next call. m and the type must be the same on all ranks.
        """
        comm = self._comm
        first, end = self._bounds[comm.rank]
        shape = comm.size, len(rows), end - first, *rows.shape[2:]
        if (self._parts.shape, self._parts.dtype) != (shape, rows.dtype):
            self._parts = np.empty(shape, rows.dtype)
        parts = self._parts
        parts[comm.rank] = rows[:, first:end]
        requests = [
            comm.Irecv(row, q, COLLECT) for q in self._others if end > first for row in parts[q]
        ]  # messages between two ranks arrive in the order of sending
        for q in self._others:
            start, stop = self._bounds[q]
            if stop > start:
                requests += [comm.Isend(row[start:stop], q, COLLECT) for row in rows]
        calls_of(comm).wait(requests)
        return parts

    def own(self, vector: np.ndarray) -> np.ndarray:
        """This rank's chunk of a vector (n,)."""
        return vector[slice(*self._bounds[self._comm.rank])]

    def deliver(self, total: np.ndarray, out: np.ndarray) -> np.ndarray:
        """Fills `total` (n,) with the chunks of all ranks; each rank has written its own. Returns `out`, the array
        that `total` is a view of.
        """
        comm, mine = self._comm, as_bytes(self.own(total))
        requests = []
        for q in self._others:
            start, stop = self._bounds[q]
            if stop > start:
                requests.append(comm.Irecv(as_bytes(total[start:stop]), q, DELIVER))
        requests += [comm.Isend(mine, q, DELIVER) for q in self._others if mine.size]
        calls_of(comm).wait(requests)
        return out
