"""Communicators of reducers: one each, and back again when a reducer has gone, freed or not.

To free a communicator takes all ranks, and a reducer that nothing refers to is dropped by each rank at a time of its
own. So that is noted, and now and then, in a call that all ranks make, those are freed that all have dropped.
"""

from __future__ import annotations

import gc
from typing import Any

from mpi4py import MPI

MANY = 128  # alive, from which on it is asked which were dropped; MPI libraries have some thousands

_KEY = MPI.Comm.Create_keyval()


class Ledger:
    """The communicators that were made from one, by number: in the order in which all ranks made them."""

    def __init__(self) -> None:
        self.alive: dict[int, MPI.Comm] = {}
        self.dropped: set[int] = set()
        self._made, self._ask_at = 0, MANY

    def make(self, comm: MPI.Comm) -> int:
        """The number of a new one. Collective."""
        if len(self.alive) >= self._ask_at:
            self._free_dropped(comm)
            self._ask_at = len(self.alive) + MANY
        self._made += 1
        self.alive[self._made] = comm.Dup()
        return self._made

    def free(self, number: int) -> None:
        """Give one back, and those that were made from it and dropped. Collective."""
        self.dropped.discard(number)
        comm = self.alive.pop(number)
        inner: Any = comm.Get_attr(_KEY)
        if inner is not None and inner.alive:
            inner._free_dropped(comm)
        comm.Free()

    def _free_dropped(self, comm: MPI.Comm) -> None:
        gc.collect()  # a reducer that nothing refers to may be in a cycle
        for number in sorted(set.intersection(*comm.allgather(self.dropped))):
            self.free(number)


def ledger_of(comm: MPI.Comm) -> Ledger:
    """The ledger of a communicator, as old as that."""
    ledger: Any = comm.Get_attr(_KEY)
    if ledger is None:
        ledger = Ledger()
        comm.Set_attr(_KEY, ledger)
    return ledger
