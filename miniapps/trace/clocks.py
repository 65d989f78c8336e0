"""Measures the offset between this rank's clock and rank 0's, by a few round trips.

All processes of a node read one clock (CLOCK_MONOTONIC on Linux), so only one rank per node is measured.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

ROUNDS = 8
_TAG = 32001


class Clocks:
    """Offsets against rank 0 of `comm`; construction, `offset` and `free` are collective."""

    def __init__(self, comm, node=None):
        from mpi4py import MPI

        self.comm = comm
        self.node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank) if node is None else node
        leader = comm.rank if self.node.rank == 0 else None
        self.leaders = [rank for rank in comm.allgather(leader) if rank is not None]

    def offset(self, clock: Callable[[], int] = time.perf_counter_ns) -> tuple[float, float]:
        """Returns (offset, bound) in ns: this rank's `clock` minus rank 0's, with an error of at most `bound`.

        The fastest round trip decides: rank 0 read its clock at most half a round trip away from the middle (Cristian
        1989; SKaMPI).
        """
        best = None
        for leader in self.leaders:
            if leader != 0 and self.comm.rank == leader:
                best = self._ask(clock)
            elif leader != 0 and self.comm.rank == 0:
                self._answer(leader, clock)
        return self.node.bcast(best or (0.0, 0.0), root=0)

    def free(self) -> None:
        """Free the communicator of the node."""
        self.node.Free()

    def _ask(self, clock: Callable[[], int]) -> tuple[float, float]:
        middle, least = 0.0, math.inf
        for _ in range(ROUNDS):
            sent = clock()
            there = self.comm.sendrecv(None, dest=0, sendtag=_TAG, source=0, recvtag=_TAG)
            back = clock()
            if back - sent < 2 * least:
                middle, least = (sent + back) / 2 - there, (back - sent) / 2
        return middle, least

    def _answer(self, rank: int, clock: Callable[[], int]) -> None:
        for _ in range(ROUNDS):
            self.comm.recv(source=rank, tag=_TAG)
            self.comm.send(clock(), dest=rank, tag=_TAG)
