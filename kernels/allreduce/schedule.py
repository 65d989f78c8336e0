"""A schedule: which part of the vector each rank sends to whom, and in which order it adds.

The vector of n elements is cut into `chunks` contiguous parts. Every rank has numbered slots, each as long as
the vector:

    -1, -2, ...   the rank's own contributions, never written; most orderings know one, the sum of all
    0             the total at the end
    1, 2, ...     scratch

A round has three parts, in this order on every rank:

1. its receives and sends, all together, on the state before the round;
2. its sums, one after the other: the source slots of one chunk are added left to right.

A chunk of the total is never written while the same chunk of a contribution is still to be read, so a vector can
be reduced in place. A schedule knows nothing of MPI, of element types and of n: the executor, the serial simulator,
the reduction tree, the drawing and the cost model all read the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

OWN = -1  # slot of a rank's (first) contribution
TOTAL = 0


@dataclass(frozen=True, slots=True)
class Message:
    """One chunk to or from `peer`; `slot`: where this rank reads or writes it."""

    peer: int
    chunk: int
    slot: int


@dataclass(frozen=True, slots=True)
class Sum:
    """slot[into] = ((slot[sources[0]] + slot[sources[1]]) + slot[sources[2]]) + ..., for one chunk.

    With one source it is a copy.
    """

    chunk: int
    into: int
    sources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """One rank's part in one round. Messages of a round between two ranks match in the order listed."""

    sends: tuple[Message, ...] = ()
    receives: tuple[Message, ...] = ()
    sums: tuple[Sum, ...] = ()


Cut = Callable[[int, int, int], tuple[int, int]]


def evenly(n: int, chunks: int, chunk: int) -> tuple[int, int]:
    """First element of a chunk and of the next. Lengths differ by at most one; some are 0 when n < chunks."""
    return n * chunk // chunks, n * (chunk + 1) // chunks


@dataclass(frozen=True)
class Schedule:
    """All rounds of all ranks, as data made on demand: `program(rank)` is a pure function of the rank.

    Rounds are made on demand because all of them together grow with size squared, while a rank executes only its own.
    `leaves(rank)` numbers the contributions that a rank holds at the start, in the slots -1, -2, ...: by default one,
    numbered as the rank. `cut(n, chunks, chunk)` gives where a chunk begins and ends. `uniform`: the same tree combines
    every chunk, so a vector may be reduced in parts, each cut into chunks of its own.
    """

    size: int
    chunks: int
    program: Callable[[int], tuple[Round, ...]]
    leaves: Callable[[int], tuple[int, ...]] = lambda rank: (rank,)
    cut: Cut = evenly
    uniform: bool = False

    def __post_init__(self):
        object.__setattr__(self, "program", cache(self.program))

    def ranks(self) -> Iterator[tuple[Round, ...]]:
        """The rounds of every rank, in rank order; every rank has the same number of rounds."""
        return (self.program(rank) for rank in range(self.size))

    def bounds(self, n: int, chunk: int) -> tuple[int, int]:
        """The elements [first, stop) of a chunk of a vector of n."""
        return self.cut(n, self.chunks, chunk)

    def chunk_of(self, element: int, n: int) -> int:
        """The chunk that holds an element of a vector of n."""
        return next(c for c in range(self.chunks) if self.bounds(n, c)[1] > element)


def behind_last_sum(rounds: Iterable[Round]) -> int:
    """The number of the first round after all sums of a rank."""
    return max((i + 1 for i, r in enumerate(rounds) if r.sums), default=0)


def totals_alone_travel(rounds: Iterable[Round]) -> bool:
    """Whether a rank sends and receives nothing but parts of the total in these rounds."""
    return all(m.slot == TOTAL for r in rounds for m in (*r.sends, *r.receives))


def gathers_from(schedule: Schedule) -> int:
    """The first round from which all messages of all ranks carry parts of the total that are complete.

    That is the one after the last sum of any rank, or the number of rounds if a later message carries anything else.
    """
    programs = list(schedule.ranks())
    first = max(map(behind_last_sum, programs), default=0)
    whole = all(totals_alone_travel(rounds[first:]) for rounds in programs)
    return first if whole else max(map(len, programs), default=0)


@dataclass(frozen=True, slots=True)
class Transfer:
    """Elements [start, stop) of a slot that travel to or from `peer` as one message."""

    peer: int
    tag: int
    slot: int
    start: int
    stop: int


def transfers(messages: tuple[Message, ...], bounds: Callable[[int], tuple[int, int]]) -> list[Transfer]:
    """The messages for the sends, or the receives, of a round; `bounds(chunk)` gives the elements [start, stop).

    Empty chunks are not sent. Chunks that follow each other in the list and in the vector, between the same two ranks
    and slots, make one message. Sender and receiver agree on that, since their slots correspond one to one within a
    round (the simulator checks it). The tag numbers the messages of one round between two ranks: MPI may start requests
    of one group in any order.
    """
    result: list[Transfer] = []
    last: dict[int, int] = {}  # peer -> index in result of its latest message
    for message in messages:
        start, stop = bounds(message.chunk)
        if start == stop:
            continue
        index = last.get(message.peer)
        tag = 0
        if index is not None:
            before = result[index]
            if before.stop == start and before.slot == message.slot:
                result[index] = Transfer(before.peer, before.tag, before.slot, before.start, stop)
                continue
            tag = before.tag + 1
        last[message.peer] = len(result)
        result.append(Transfer(message.peer, tag, message.slot, start, stop))
    return result
