"""Communicators of reducers: one for each, freed after the reducer was freed or dropped.

All ranks must free a communicator together, but each rank drops an unreferenced reducer at a time of its own. So a
rank notes the drop. Now and then, in a call that all ranks make, they free the communicators that all have dropped.
"""

from __future__ import annotations

import gc
from functools import cache
from typing import Any

from mpi4py import MPI

MANY = 128  # alive before ranks look for dropped ones; MPI libraries have some thousands


class Ledger:
    """The communicators made from one, by number, in the order of creation, which all ranks share."""

    def __init__(self) -> None:
        self.alive: dict[int, MPI.Comm] = {}
        self.dropped: set[int] = set()
        self._made, self._ask_at = 0, MANY

    def make(self, comm: MPI.Comm) -> int:
        """Makes a communicator and returns its number. Collective."""
        if len(self.alive) >= self._ask_at:
            self._free_dropped(comm)
            self._ask_at = len(self.alive) + MANY
        self._made += 1
        self.alive[self._made] = comm.Dup()
        return self._made

    def free(self, number: int) -> None:
        """Frees a communicator, and dropped ones that were made from it. Collective."""
        self.dropped.discard(number)
        comm = self.alive.pop(number)
        inner: Any = comm.Get_attr(_key())
        if inner is not None and inner.alive:
            inner._free_dropped(comm)
        comm.Free()

    def _free_dropped(self, comm: MPI.Comm) -> None:
        gc.collect()  # a reducer that nothing refers to may be in a cycle
        for number in sorted(set.intersection(*comm.allgather(self.dropped))):
            self.free(number)


def ledger_of(comm: MPI.Comm) -> Ledger:
    """The ledger of a communicator, made at the first request."""
    ledger: Any = comm.Get_attr(_key())
    if ledger is None:
        ledger = Ledger()
        comm.Set_attr(_key(), ledger)
    return ledger


def _key() -> int:
    """The key of ledgers among the attributes of MPI's communicators; others need none."""
    return _made_key() if MPI.Is_initialized() else 0


@cache
def _made_key() -> int:
    return MPI.Comm.Create_keyval()
