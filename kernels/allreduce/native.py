"""The reducer that hands over to the MPI library."""

from __future__ import annotations

import numpy as np
from mpi4py import MPI

from kernels.allreduce.operations import Operation
from kernels.allreduce.reducer import Reducer

OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}
FOLDS = {"sum": np.add.reduce, "prod": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce}

# Longer vectors go through the blocking call: its algorithms are chosen by length, and on both MPICH and
# Open MPI it then beats the persistent one, which wins by lower overhead when short.
PERSISTENT_BYTES = 1 << 16


def allreduce(comm: MPI.Comm, send: np.ndarray, receive: np.ndarray, op: MPI.Op, requests: list):
    """A function that all-reduces `send` into `receive` each time it is called, in the fastest way there is.

    A persistent request, which it needs only for short vectors and from MPI 4 on, is added to `requests`.
    """
    if send.nbytes <= PERSISTENT_BYTES:
        try:
            request = comm.Allreduce_init(send, receive, op)
        except NotImplementedError:  # MPI before 4.0
            pass
        else:
            requests.append(request)
            start, wait = request.Start, request.Wait

            def persistent():
                start()
                wait()

            return persistent
    return lambda: comm.Allreduce(send, receive, op)


class NativeReducer(Reducer):
    """Local contributions combined as by `np.sum`, as a user would write it, then the library's all-reduce."""

    def __init__(self, comm, ordering, shape, dtype, name, operation: Operation):
        super().__init__(comm, ordering, shape, dtype, name)
        self._fold = FOLDS[operation.name]
        self._own = np.zeros(shape, dtype)
        self.nbytes = self._own.nbytes
        if comm.size == 1 or not self.nbytes:
            self._own, self._sum = self._total, _nothing
        else:
            self._sum = allreduce(self._comm, self._own, self._total, OPS[operation.name], self._requests)

    def _reduce(self, contributions):
        self._fold(contributions, 0, None, self._own)
        self._sum()
        return self._total


def _nothing() -> None:
    """One rank, or no elements: the local sum is the total."""
