"""Requests of reducers, and their memory when a reduction is abandoned.

MPI writes into the buffer of a receive, and reads that of a send, until the request is complete, even after the Python
object is gone. So a request under way keeps its memory until it is complete, or for ever. It is not cancelled: sends
and collective calls cannot be, and cancelling receives while their message came stopped MPICH 5.0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from mpi4py import MPI

# A request, and the memory that it reads or writes, which mpi4py keeps alive for persistent requests alone.
Begun = tuple[MPI.Request, Any]


class Calls(NamedTuple):
    """How several requests of a communicator are started, awaited and tested at once."""

    start: Callable[[Any], None]
    wait: Callable[[Any], Any]
    test: Callable[[Any], bool]


_left: list[Begun] = []  # under way, and nothing waits for them


def calls_of(comm: Any) -> Calls:
    """The calls for requests of a communicator of mpi4py, or of another that brings its own."""
    own: Calls | None = getattr(comm, "calls", None)
    return own or Calls(MPI.Prequest.Startall, MPI.Request.Waitall, MPI.Request.Testall)


class Requests(list[MPI.Prequest]):
    """The persistent requests of a reducer; `loose`: other requests that may be under way. `amid`: a reduction was
    begun and not ended, so that messages may come for which no receive is posted."""

    def __init__(self) -> None:
        super().__init__()
        self.loose: list[Begun] = []
        self.amid = False

    def begun(self, request: MPI.Request, *memory: Any) -> MPI.Request:
        """Records a request that is under way over this memory, and returns it; persistent ones are known."""
        self.loose[:] = [other for other in self.loose if other[0] != MPI.REQUEST_NULL]
        if not isinstance(request, MPI.Prequest) and request != MPI.REQUEST_NULL:
            self.loose.append((request, memory))
        return request

    def give_up(self, requests: list[MPI.Prequest]) -> None:
        """Lets go of some of the persistent requests."""
        gone = {id(request) for request in requests}
        self[:] = [request for request in self if id(request) not in gone]
        _let_go((request, None) for request in requests)


def release(requests: Requests) -> bool:
    """Lets go of all of a reducer's requests: frees idle ones; others keep their memory until they are complete.
    Returns whether nothing is left on the communicator. Not collective."""
    _left[:] = [begun for begun in _left if not _completed(begun[0])]
    before = len(_left)
    _let_go([*((request, None) for request in requests), *requests.loose])
    return len(_left) == before and not requests.amid


def _let_go(begun: Iterable[Begun]) -> None:
    _left.extend(each for each in begun if not _completed(each[0]))


def _completed(request: MPI.Request) -> bool:
    """Whether a request is idle or complete; if so, frees it."""
    if request == MPI.REQUEST_NULL:
        return True
    if not request.Test():
        return False
    if request != MPI.REQUEST_NULL:  # persistent
        request.Free()
    return True
