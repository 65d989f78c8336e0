"""Around a ring of ranks: reduce-scatter, then allgather."""

from __future__ import annotations

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Cut, Message, Round, Schedule, Sum, evenly


def balanced(n: int, chunks: int, chunk: int) -> tuple[int, int]:
    """The first n modulo chunks have one element more than the others."""
    length, more = divmod(n, chunks)
    return chunk * length + min(chunk, more), (chunk + 1) * length + min(chunk + 1, more)


def full(n: int, chunks: int, chunk: int) -> tuple[int, int]:
    """All chunks have n / chunks elements, rounded up, until there are no more."""
    length = -(-n // chunks)
    return min(n, chunk * length), min(n, (chunk + 1) * length)


CUTS: dict[str, Cut] = {"balanced": balanced, "full": full}


@ordering(
    "ring",
    guarantee="run",
    why="each chunk is summed around the ring from a rank of its own; "
    "the rank count and the place in the vector decide",
    choices={"cut": CUTS},
)
def ring(size: int, *, start: int = 0, cut: str = "balanced") -> Schedule:
    """Reduce-scatter, then allgather around a ring: least bytes, most steps (Patarasuk and Yuan 2009).

    Chunk c is summed from rank c + start on. `cut` says where chunks end if n is no multiple of p: `balanced`, the
    first ones have one element more, or `full`, all are as long as the first, and the last ones short or empty.
    """
    return _ring(size, start, cut, 1)


@ordering(
    "segmented-ring",
    guarantee="run",
    why="the additions of ring: segments of a chunk are summed in the same order; "
    "the rank count and the place in the vector decide",
    choices={"cut": CUTS},
)
def segmented_ring(size: int, *, segments: int = 2, start: int = 0, cut: str = "balanced") -> Schedule:
    """As `ring`, each chunk in segments that follow each other: one is added while the next travels."""
    return _ring(size, start, cut, segments)


def _ring(size: int, start: int, cut: str, segments: int) -> Schedule:
    """Segment s is s rounds behind. Chunk number c * segments + s is segment s of chunk c."""
    steps = size - 1
    rounds = steps + segments - 1

    def at(chunk: int, segment: int) -> int:
        return chunk % size * segments + segment

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return (Round(sums=tuple(Sum(c, TOTAL, (OWN,)) for c in range(segments))),)
        after, before = (rank + 1) % size, (rank - 1) % size
        mine = rank - start  # the chunk that this rank begins
        reduce_scatter, allgather = [], []
        for index in range(rounds):
            # Own numbers arrive in slot 1, sums in slot 2: slots of sender and receiver correspond.
            active = [(index - s, s) for s in range(segments) if 0 <= index - s < steps]
            reduce_scatter.append(
                Round(
                    sends=tuple(Message(after, at(mine - i, s), TOTAL if i else OWN) for i, s in active),
                    receives=tuple(Message(before, at(mine - 1 - i, s), 2 if i else 1) for i, s in active),
                    sums=tuple(Sum(at(mine - 1 - i, s), TOTAL, (2 if i else 1, OWN)) for i, s in active),
                )
            )
            allgather.append(
                Round(
                    sends=tuple(Message(after, at(mine + 1 - i, s), TOTAL) for i, s in active),
                    receives=tuple(Message(before, at(mine - i, s), TOTAL) for i, s in active),
                )
            )
        return tuple(reduce_scatter + allgather)

    def segment_bounds(n: int, chunks: int, chunk: int) -> tuple[int, int]:
        first, behind = CUTS[cut](n, size, chunk // segments)
        start, stop = evenly(behind - first, segments, chunk % segments)
        return first + start, first + stop

    return Schedule(size, size * segments, program, cut=segment_bounds)
