"""A rank's part of a schedule, bound to memory: persistent requests and prepared sums.

Every message is a persistent request and every sum is prepared once, so that a call allocates nothing. The requests of
the last few places of contributions and total are kept. Long vectors go in segments, one behind the other: one segment
is added while the next one moves, and received words are still in the cache when they are added.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from mpi4py import MPI

from kernels import _native
from kernels.allreduce.execution.program import AHEAD, Memory, steps
from kernels.allreduce.execution.reducer import as_bytes
from kernels.allreduce.execution.requests import Calls, Requests
from kernels.allreduce.local import ahead
from kernels.allreduce.operations import Operation
from kernels.allreduce.schedule import TOTAL, Schedule, Transfer
from kernels.tree import Tree
from kernels.wires import Wire

SEGMENT_BYTES = 1 << 20  # of the vector, at least
PIECE_BYTES = 1 << 16  # of a chunk in a segment, at least: many ranks would send many small messages
MOST_SEGMENTS = 32
PLACES = 2  # whose requests are kept, which keeps the caller's memory there alive
# Most bytes of a message inside a node that a library hands over in one piece. A slightly longer message costs a
# handshake, and takes longer than a few pieces: measured with MPICH 5.0 and Open MPI 5.0.
EAGER_BYTES = {"MPICH": 8000, "Open MPI": 4000}
EAGER_PIECES = 3

View = Callable[[int, int, int], np.ndarray]


@dataclass(slots=True)
class Ready:
    """A step over fixed memory; `after` is the previous step of the same segment.

    `loads` run before all messages. `sends` encode and send the messages of a wire, whose lengths vary. `sums` run
    after all messages, and decode first.
    """

    after: int
    loads: list[Callable[[], None]]
    requests: list[MPI.Prequest]
    sends: list[Callable[[], MPI.Request]]
    sums: list[Callable[[], None]]


@dataclass(frozen=True)
class Rounding:
    """Conversions of words that stand for numbers. `load(start, stop)` makes the words of a rank's contributions,
    segment by segment; `store(words, elements)` rounds words of the total. From round `gathers` on elements of `total`
    travel."""

    gathers: int
    total: np.ndarray
    load: Callable[[int, int], None]
    store: Callable[[np.ndarray, np.ndarray], None]


class Route:
    """The rounds of this rank for vectors of `words` (n * width,), combined by `operation`.

    `requests` collects requests that may be under way, to be released with the reducer. `wire`: the encoding of words
    to and from the ranks `away`, on other nodes; None: no encoding. `rounding`: None if words are elements.
    """

    def __init__(
        self,
        comm: MPI.Comm,
        schedule: Schedule,
        words: np.ndarray,
        width: int,
        operation: Operation,
        requests: Requests,
        wire: Wire | None = None,
        away: Collection[int] = (),
        rounding: Rounding | None = None,
    ):
        self._comm, self._operation, self._requests = comm, operation, requests
        self._schedule, self._words, self._width = schedule, words, width
        self._wire, self._away, self._rounding = wire, away, rounding
        least = max(SEGMENT_BYTES, PIECE_BYTES * schedule.chunks)
        self.segments = min(max(words.nbytes // least, 1), MOST_SEGMENTS)
        gathers = None if rounding is None else rounding.gathers
        self._steps = steps(schedule, comm.rank, words.size // width, width, self.segments, gathers)
        self._memory = Memory(self._steps, words.dtype)
        self._places: dict[tuple[int, int], list[Ready]] = {}  # by address of contributions and total

    def after_trees(self) -> tuple[list[Tree], Route]:
        """The trees that this rank first evaluates alone, and the route that takes their sums as contributions."""
        trees, rounds = ahead(self._schedule, self._comm.rank)
        later = replace(self._schedule, program=lambda rank: rounds)
        about = self._operation, self._requests, self._wire, self._away, self._rounding
        return trees, Route(self._comm, later, self._words, self._width, *about)

    def known(self, own: np.ndarray, total: np.ndarray) -> list[Ready] | None:
        """The steps that `at` gives, if this place is among the last few; else None."""
        return self._places.get((_native.address(own), _native.address(total)))

    def at(self, own: np.ndarray, total: np.ndarray) -> list[Ready]:
        """The steps over the contributions `own` (k, *shape) and the memory of a total, made when first seen."""
        place = _native.address(own), _native.address(total)
        ready = self._places.get(place)
        if ready is None:
            if len(self._places) == PLACES:
                self._forget(self._places.pop(next(iter(self._places))))
            # Not `for row in own`: of shape (), that makes numbers, not views.
            rows = [own[i, ...].reshape(-1) for i in range(len(own))]
            ready = self._places[place] = self._bind(rows, total.reshape(-1))
        return ready

    def _bind(self, own: list[np.ndarray], total: np.ndarray) -> list[Ready]:
        ready = []
        for step in self._steps:
            view = self._memory.view(own, total, step.segment)
            travels = self._elements if step.gathers else view
            sends: list[Callable[[], MPI.Request]] = []
            sums: list[Callable[[], None]] = []
            encoded = () if self._wire is None or step.gathers else self._away
            requests = _persistent_requests(
                self._comm.Recv_init, [t for t in step.receives if t.peer not in encoded], travels
            )
            requests += _persistent_requests(
                self._comm.Send_init, [t for t in step.sends if t.peer not in encoded], travels
            )
            if encoded:
                assert self._wire is not None
                requests += [
                    self._received(self._wire, t, view, sums) for t in step.receives if t.peer in encoded
                ]
                sends += [self._sent(self._wire, t, view) for t in step.sends if t.peer in encoded]
            self._requests.extend(requests)
            sums += [
                self._operation.prepared(
                    [view(s, c.start, c.stop) for s in c.sources], view(c.into, c.start, c.stop)
                )
                for c in step.sums
            ]
            loads: list[Callable[[], None]] = []
            if self._rounding is not None:
                loads = [partial(self._rounding.load, *elements) for elements in step.loaded]
                sums += [self._rounded(total, *elements) for elements in step.rounded]
            ready.append(Ready(step.after, loads, requests, sends, sums))
        return ready

    def _elements(self, slot: int, start: int, stop: int) -> np.ndarray:
        """Elements of the total, the only slot that travels as elements."""
        assert self._rounding is not None
        return self._rounding.total.reshape(-1)[start:stop]

    def _rounded(self, total: np.ndarray, start: int, stop: int) -> Callable[[], None]:
        assert self._rounding is not None
        words = total[start * self._width : stop * self._width]
        return partial(self._rounding.store, words, self._elements(TOTAL, start, stop))

    def _sent(self, wire: Wire, t: Transfer, view: View) -> Callable[[], MPI.Request]:
        """A function that encodes a message and begins to send it."""
        words = view(t.slot, t.start, t.stop)
        buffer = np.empty(wire.most(len(words) // self._width, self._width), np.uint8)

        def send() -> MPI.Request:
            length = wire.encode(words, self._width, buffer)
            return self._requests.begun(self._comm.Isend(buffer[:length], t.peer, t.tag), buffer)

        return send

    def _received(self, wire: Wire, t: Transfer, view: View, sums: list[Callable[[], None]]) -> MPI.Prequest:
        """The request of a message of unknown length; adds a function that decodes it to `sums`."""
        words = view(t.slot, t.start, t.stop)
        buffer = np.empty(wire.most(len(words) // self._width, self._width), np.uint8)
        sums.append(partial(wire.decode, buffer, self._width, words))
        return self._comm.Recv_init(buffer, t.peer, t.tag)

    def _forget(self, ready: list[Ready]) -> None:
        self._requests.give_up([request for step in ready for request in step.requests])


class Flight:
    """One reduction under way: steps begin in order, at most AHEAD at once, when their inputs are there."""

    def __init__(self, ready: Sequence[Ready], calls: Calls):
        self._ready, self._calls = ready, calls
        self._begun = self._done = 0
        self._sent: dict[int, list[MPI.Request]] = {}  # by step, the requests of its wire
        self._begin()

    def _begin(self) -> None:
        while self._begun < min(len(self._ready), self._done + AHEAD):
            step = self._ready[self._begun]
            if step.after >= self._done:
                return
            for load in step.loads:
                load()
            if step.requests:
                self._calls.start(step.requests)
            if step.sends:
                self._sent[self._begun] = [send() for send in step.sends]
            self._begun += 1

    def advance(self, wait: bool) -> bool:
        """Advances as far as messages have come, or with `wait` to the end; returns whether the end is reached."""
        while self._done < len(self._ready):
            step = self._ready[self._done]
            under_way = [*step.requests, *self._sent.get(self._done, ())]
            if wait:
                self._calls.wait(under_way)
            elif not self._calls.test(under_way):
                return False
            self._sent.pop(self._done, None)
            for combine in step.sums:
                combine()
            self._done += 1
            self._begin()
        return True


def _persistent_requests(make: Callable, transfers: Sequence[Transfer], view: View) -> list[MPI.Prequest]:
    """Both ends cut a message into the same pieces, with tags of their own: MPI may start a group in any order."""
    requests = []
    for t in transfers:
        message = as_bytes(view(t.slot, t.start, t.stop))
        pieces = _pieces(message.nbytes)
        cuts = [message.nbytes * i // pieces for i in range(pieces + 1)]
        for i, (start, stop) in enumerate(itertools.pairwise(cuts)):
            requests.append(make(message[start:stop], t.peer, t.tag * EAGER_PIECES + i))
    return requests


def _pieces(nbytes: int) -> int:
    eager = EAGER_BYTES.get(MPI.get_vendor()[0], nbytes)
    pieces = max(math.ceil(nbytes / eager), 1) if eager else 1
    return pieces if pieces <= EAGER_PIECES else 1
