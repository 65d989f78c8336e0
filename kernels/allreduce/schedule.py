"""A schedule: who sends which part of the vector to whom, and in which order what is added.

The vector of n elements is cut into `chunks` contiguous parts. Every rank has numbered slots, each as long as
the vector: slot 0 holds its own vector at the start and the total at the end, the others are scratch. A round
has three parts, in this order on every rank:

1. its receives and sends, all together, on the state before the round;
2. its sums, one after the other: the source slots of one chunk are added left to right.

A schedule knows nothing of MPI, of element types and of n: the executor, the serial simulator, the reduction
tree and the cost model all read the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Message:
    """One chunk to or from `peer`: `slot` is where this rank takes it from or puts it."""

    peer: int
    chunk: int
    slot: int


@dataclass(frozen=True, slots=True)
class Sum:
    """slot[into] = ((slot[sources[0]] + slot[sources[1]]) + slot[sources[2]]) + ..., for one chunk."""

    chunk: int
    into: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """What one rank does in one round. Messages of a round between two ranks match in the order listed."""

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()
    sums: tuple[Sum, ...] = ()


@dataclass(frozen=True)
class Schedule:
    """All rounds of all ranks, as data made on demand: `program(rank)` is a pure function of the rank.

    On demand because the whole of it grows with size squared, while a rank executes only its own part.
    """

    size: int
    chunks: int
    program: Callable[[int], tuple[Round, ...]]

    def __post_init__(self):
        object.__setattr__(self, "program", cache(self.program))

    def ranks(self) -> Iterator[tuple[Round, ...]]:
        """The rounds of every rank, in rank order; every rank has the same number of rounds."""
        return (self.program(rank) for rank in range(self.size))


def bounds(n: int, chunks: int, chunk: int) -> tuple[int, int]:
    """First element of a chunk and of the next. Lengths differ by at most one; some are 0 when n < chunks."""
    return n * chunk // chunks, n * (chunk + 1) // chunks


def chunk_of(element: int, n: int, chunks: int) -> int:
    """The chunk that holds an element of a vector of n."""
    return next(c for c in range(chunks) if bounds(n, chunks, c)[1] > element)


def transfers(messages: tuple[Message, ...], n: int, chunks: int) -> list[tuple[int, int, int, int, int]]:
    """What travels for the sends, or the receives, of a round: (peer, tag, slot, first element, end).

    Empty chunks do not travel. Chunks that follow each other in the list and in the vector, between the same
    two ranks, make one message. Sender and receiver decide so alike, since a message's slot is the same
    for all chunks that one rank sends to another in one round (the simulator checks it). The tag numbers the
    messages of one round between two ranks: MPI may start requests of one group in any order.
    """
    result: list[tuple[int, int, int, int, int]] = []
    last: dict[int, int] = {}  # peer -> index in result of its latest message
    for message in messages:
        start, stop = bounds(n, chunks, message.chunk)
        if start == stop:
            continue
        index = last.get(message.peer)
        if index is None:
            tag = 0
        else:
            peer, tag, slot, begun, ended = result[index]
            if ended == start:
                result[index] = (peer, tag, slot, begun, stop)
                continue
            tag += 1
        last[message.peer] = len(result)
        result.append((message.peer, tag, message.slot, start, stop))
    return result
