"""Requests of reducers, and what becomes of them and of their memory when a reduction is left before its end.

MPI writes into the buffer of a receive until that is complete, and reads that of a send, whatever becomes of the object
that began them. So what is still under way keeps its memory until it is complete, or for ever. It is not cancelled: a
send or a collective call cannot be, and receives that were cancelled while their message came stopped MPICH 5.0.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mpi4py import MPI

# And the memory that it reads or writes, which mpi4py keeps for persistent ones alone.
Begun = tuple[MPI.Request, Any]

_left: list[Begun] = []  # under way with nobody to wait for it


class Requests(list[MPI.Prequest]):
    """The persistent requests of a reducer; `loose` is what else may be under way. `amid`: whether a reduction was
    begun and not ended, of which messages may come that nobody has asked for yet."""

    def __init__(self) -> None:
        super().__init__()
        self.loose: list[Begun] = []
        self.amid = False

    def begun(self, request: MPI.Request, *memory: Any) -> MPI.Request:
        """Note what is under way from now on over this memory, and return it; a persistent request is known."""
        self.loose[:] = [other for other in self.loose if other[0] != MPI.REQUEST_NULL]
        if not isinstance(request, MPI.Prequest) and request != MPI.REQUEST_NULL:
            self.loose.append((request, memory))
        return request

    def give_up(self, requests: list[MPI.Prequest]) -> None:
        """Let go of some of the persistent requests."""
        gone = {id(request) for request in requests}
        self[:] = [request for request in self if id(request) not in gone]
        _let_go((request, None) for request in requests)


def release(requests: Requests) -> bool:
    """Let go of all of a reducer's requests: idle ones are freed, others keep their memory until they are complete.
    Returns whether the communicator is as good as new. Not collective."""
    _left[:] = [begun for begun in _left if not _completed(begun[0])]
    before = len(_left)
    _let_go([*((request, None) for request in requests), *requests.loose])
    return len(_left) == before and not requests.amid


def _let_go(begun: Iterable[Begun]) -> None:
    _left.extend(each for each in begun if not _completed(each[0]))


def _completed(request: MPI.Request) -> bool:
    """Whether a request is idle or complete; then it is freed."""
    if request == MPI.REQUEST_NULL:
        return True
    if not request.Test():
        return False
    if request != MPI.REQUEST_NULL:  # persistent
        request.Free()
    return True
