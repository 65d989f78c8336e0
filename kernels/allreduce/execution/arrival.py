"""The reducer that adds in the order of arrival of the messages: the truly non-deterministic one."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from mpi4py import MPI

from kernels.allreduce import accumulate
from kernels.allreduce.errors import ReplayError
from kernels.allreduce.execution.handover import Merged
from kernels.allreduce.execution.reducer import Reducer, as_bytes
from kernels.allreduce.local import left_to_right

SIZE_LIMIT = 1 << 16  # ranks in a log are uint16


class ArrivalReducer(Reducer):
    """Rank 0 adds its own contribution, then the others' as they arrive, and broadcasts the total.

    Rank 0 starts receives from any source one by one, and MPI matches messages to them in that order: the
    i-th receive holds the i-th message to arrive, also when several have come since the last look. Rank 0
    awaits them one by one, which lets waiting ranks share a core, as MPICH's Waitsome does not.

    With a log to replay, receives name their sources. Rank 0 awaits all messages and adds them in the logged
    order.
    """

    def __init__(self, comm, reduction, name, log: np.ndarray | None):
        super().__init__(comm, reduction, name)
        self._operation = reduction.operation
        self.nbytes = self._total.nbytes
        self._orders: list[np.ndarray] = []
        self._log = log
        self._replayed = 0
        self._parts: list[np.ndarray] = []
        if comm.rank:
            self._requests.append(self._comm.Send_init(as_bytes(self._total), 0))
        else:
            self._parts += [np.empty(self.shape, self.dtype) for _ in range(comm.size - 1)]
            for i, part in enumerate(self._parts):
                source = MPI.ANY_SOURCE if log is None else i + 1
                self._requests.append(self._comm.Recv_init(as_bytes(part), source))
        self._status = MPI.Status()

    def _reduce(self, contributions):
        self._operation.fold(contributions, self._total)
        if not self.nbytes:
            return self._total
        order = None if self._log is None else self._next_logged(self._log)
        for request in self._requests:
            request.Start()
        if self._comm.rank:
            self._requests[0].Wait()
        else:
            order = self._add_arriving() if order is None else self._add_logged(order)
            self._orders.append(order)
        if self._comm.size > 1:
            self._comm.Bcast(as_bytes(self._total), 0)
        return self._total

    def _make_handover(self):
        held = accumulate.get("working", self.dtype, self._operation)
        return Merged(str(self), self.blocks, self.shape, held, left_to_right(len(self.blocks or ())))

    def _reduce_added(self, added):
        return self._reduce(np.array(added.sums, self.dtype).reshape(len(added.sums), *self.shape))

    def _add_arriving(self) -> np.ndarray:
        total, status = self._total, self._status
        order = [0]
        for request, part in zip(self._requests, self._parts, strict=True):
            request.Wait(status)
            self._operation.into([total, part], total)
            order.append(status.source)
        return np.array(order, np.uint16)

    def _add_logged(self, order: np.ndarray) -> np.ndarray:
        MPI.Request.Waitall(self._requests)
        total = self._total
        # A logged order begins with rank 0, whose contribution the total already holds.
        for rank in order[1:].tolist():
            self._operation.into([total, self._parts[rank - 1]], total)
        return order

    def _next_logged(self, log: np.ndarray) -> np.ndarray:
        """The order for this call. Every rank knows the log's length, so that all raise at the same call."""
        if self._replayed == len(log):
            raise ReplayError(
                f"{self}: the log to replay holds {len(log)} orders, all used up: "
                "the recorded run made fewer calls"
            )
        self._replayed += 1
        return log[self._replayed - 1]

    def drain_orders(self) -> list[np.ndarray]:
        orders, self._orders = self._orders, []
        return orders


def read_log(comm: MPI.Comm, replay: Iterable | None) -> np.ndarray | None:
    """Returns rank 0's orders, uint16 (calls, size), on other ranks only their number; None if rank 0 has none.

    The arguments of other ranks are not read, but must be None if rank 0's is. Raises ReplayError on all ranks
    for an order that is not rank 0 followed by a permutation of the others. Collective.
    """
    log, calls, error = None, None, None
    if comm.rank == 0 and replay is not None:
        try:
            log = _validated(replay, comm.size)
            calls = len(log)
        except ReplayError as failure:
            error = failure
    calls, error = comm.bcast((calls, error), 0)
    if error is not None:
        raise error
    if comm.allreduce(calls is None and replay is not None, MPI.LOR):
        raise ReplayError("a log to replay was passed, but not on rank 0, which adds the contributions")
    if calls is not None and log is None:
        log = np.broadcast_to(np.uint16(0), (calls, comm.size))  # takes no memory
    return log


def _validated(replay: Iterable, size: int) -> np.ndarray:
    log = [np.asarray(order) for order in replay]
    expected = np.arange(size)
    for call, order in enumerate(log):
        if order.shape != (size,):
            raise ReplayError(
                f"order {call} of the log to replay has shape {order.shape}: it was recorded with another "
                f"number of ranks than the {size} of this communicator"
            )
        if order[0] != 0 or not np.array_equal(np.sort(order), expected):
            raise ReplayError(
                f"order {call} of the log to replay, {order.tolist()}, "
                "is not rank 0 followed by each of the other ranks"
            )
    return np.array(log, np.uint16).reshape(len(log), size)
