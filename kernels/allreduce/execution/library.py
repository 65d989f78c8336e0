"""The reducer that calls the MPI library's all-reduce."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from mpi4py import MPI

from kernels import _native
from kernels.allreduce.execution.device import Direct
from kernels.allreduce.execution.gpu_aware import gpu_aware
from kernels.allreduce.execution.placement import on_one_node
from kernels.allreduce.execution.reducer import Reducer
from kernels.environment import unguarded

TYPES = {"float64": MPI.DOUBLE, "float32": MPI.FLOAT, "int64": MPI.INT64_T}
OPS = {"sum": MPI.SUM, "prod": MPI.PROD, "min": MPI.MIN, "max": MPI.MAX}
FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "sum": np.add.reduce, "prod": np.multiply.reduce, "min": np.minimum.reduce, "max": np.maximum.reduce
}  # fmt: skip

# Longer vectors go through the blocking call: its algorithms are chosen by length, and on both MPICH and Open MPI it
# then beats the persistent call, whose lower overhead wins for short vectors. Over several nodes only blocking calls
# are used, as the persistent calls of both know nothing of nodes: Open MPI's all-gather sends from every rank to all.
PERSISTENT_BYTES = 1 << 16


def allreduce(comm: MPI.Comm, send: np.ndarray, receive: np.ndarray, op: MPI.Op, requests: list):
    """Returns the two fastest functions that all-reduce `send` into `receive`: one waits for the end, one begins and
    returns the request. Collective.

    For short vectors on one node, from MPI 4 on, both use a persistent request, which is added to `requests`.
    """
    if send.nbytes <= PERSISTENT_BYTES and on_one_node(comm):
        try:
            return persistent(comm.Allreduce_init(send, receive, op), requests)
        except NotImplementedError:  # MPI before 4.0
            pass
    return partial(comm.Allreduce, send, receive, op), partial(comm.Iallreduce, send, receive, op)


def all_gather(comm: MPI.Comm, send: np.ndarray, receive: np.ndarray, requests: list):
    """As `allreduce`: gathers `send` of all ranks into `receive` (size, ...)."""
    if comm.size == 1 or not send.size:
        copy = partial(np.copyto, receive[0], send)
        return copy, lambda: copy() or MPI.REQUEST_NULL
    if on_one_node(comm):
        try:
            return persistent(comm.Allgather_init(send, receive), requests)
        except NotImplementedError:  # MPI before 4.0
            pass
    return partial(comm.Allgather, send, receive), partial(comm.Iallgather, send, receive)


def persistent(request: MPI.Prequest, requests: list) -> tuple[Callable[[], None], Callable[[], MPI.Request]]:
    """Returns a function that starts and awaits a persistent request, and one that only starts it."""
    requests.append(request)
    start, wait = request.Start, request.Wait

    def at_once():
        start()
        wait()

    def begin():
        start()
        return request

    return at_once, begin


class LibraryReducer(Reducer):
    """Combines local contributions as `np.sum` does, like a user's program, then calls the library's all-reduce.

    The library reads a single contribution of a long vector in place. All additions use the caller's floating-point
    environment, as in a program that calls the library.
    """

    __call__ = unguarded(Reducer.__call__)
    start = unguarded(Reducer.start)
    progress = unguarded(Reducer.progress)
    add = unguarded(Reducer.add)
    finish = unguarded(Reducer.finish)

    def __init__(self, comm, reduction, name):
        super().__init__(comm, reduction, name)
        self._operation, self._op = reduction.operation, OPS[reduction.operation.name]
        self._own = np.zeros(self.shape, self.dtype)
        self.nbytes = self._own.nbytes
        self._alone = comm.size == 1 or not self.nbytes
        self._persistent = None
        if not self._alone and self.nbytes <= PERSISTENT_BYTES:
            self._persistent, _ = allreduce(self._comm, self._own, self._total, self._op, self._requests)
        self._request: MPI.Request | None = None

    def _reduce(self, contributions):
        if self._persistent is None:
            return self._reduce_into(contributions, self._total)
        self._fold(contributions, self._own)
        self._persistent()
        return self._total

    def _reduce_into(self, contributions, out):
        if self._alone:
            self._fold(contributions, out)
        elif self._persistent is not None and type(out) is np.ndarray:
            np.copyto(
                out, self._reduce(contributions)
            )  # ranks without `out` make the persistent call, so this rank must, too
        else:
            self._comm.Allreduce(self._sent(contributions, out), _buffer(out), self._op)
        return out

    def _begin(self, contributions, out):
        # A call under way cannot be stopped, so the library never fills the caller's host memory.
        self._out, into = out, self._total if type(out) is np.ndarray else out
        if self._alone:
            self._fold(contributions, into)
        else:
            sent = self._sent(contributions, into)
            begun = self._comm.Iallreduce(sent, _buffer(into), self._op)
            self._request = self._requests.begun(begun, sent, contributions, into)

    def _progress(self):
        return self._request is None or self._request.Test()

    def _end(self):
        if self._request is not None:
            self._request.Wait()
        self._request, out = None, self._out
        if type(out) is np.ndarray and out is not self._total:
            np.copyto(out, self._total)
        return out

    def _stage(self, contributions, out):
        if self._staging is None and not self._alone and gpu_aware():
            self._staging = Direct(self._operation)
        return super()._stage(contributions, out)

    def _fold(self, contributions: np.ndarray, out: np.ndarray) -> None:
        if len(contributions) == 1:
            np.copyto(
                out, contributions[0]
            )  # not added to 0, which would flush subnormals in an environment that does so
        elif len(contributions):
            FOLDS[self._operation.name](contributions, 0, None, out)
        else:
            out.fill(self._operation.identity(self.dtype))

    def _sent(self, contributions: np.ndarray, out: np.ndarray):
        """The buffer that the library reads: the one contribution, MPI.IN_PLACE, or the local sum."""
        if type(contributions) is not np.ndarray:
            return _buffer(contributions)  # the combined contribution, in the reducer's GPU memory
        if len(contributions) == 1 and contributions.flags.c_contiguous:
            if _native.address(contributions) == _native.address(out):
                return MPI.IN_PLACE
            if not np.may_share_memory(contributions, out):
                return contributions[0, ...]
        self._fold(contributions, self._own)
        return self._own


def _buffer(array):
    """An array as mpi4py takes it. GPU memory is passed by its address, which works with all versions of CuPy."""
    if type(array) is np.ndarray:
        return array
    return MPI.buffer.fromaddress(array.data.ptr, array.nbytes), TYPES[array.dtype.name]
