"""Halving while adding, doubling while collecting: Rabenseifner's all-reduce."""

from __future__ import annotations

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import TOTAL, Message, Round, Schedule, Sum
from kernels.allreduce.schedules.folding import choose, folded


def rest_last(n: int, chunks: int, chunk: int) -> tuple[int, int]:
    """All chunks of n // chunks elements; the last has the rest as well."""
    length = n // chunks
    return length * chunk, n if chunk == chunks - 1 else length * (chunk + 1)


@ordering(
    "rabenseifner",
    guarantee="run",
    why="for k = 2 the tree of recursive-doubling, wherever an element stands; for a larger k its chunk's owner adds "
    "its own sum first, so that rank count, k and the place in the vector decide",
)
def rabenseifner(size: int, *, k: int = 2) -> Schedule:
    """Recursive halving, then doubling: partners 1, k, k^2, ... away add parts of the vector, then collect them.

    Each step gives away half of the remaining part (with larger k, k - 1 of k parts), so each rank sends the least
    bytes in the fewest steps (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005). Sizes that are no power of k are
    folded as by `recursive-doubling`.
    """
    folding = choose(size, k)
    k, chunks = folding.k, len(folding.ranks)

    def inner(place: int, mine: int) -> list[Round]:
        reduce_scatter, allgather = [], []
        first, length = 0, chunks  # this place holds sums of these chunks
        for distance in (k**step for step in range(folding.digits)):
            digit = place // distance % k
            length //= k
            parts = [range(first + i * length, first + (i + 1) * length) for i in range(k)]
            others = [i for i in range(k) if i != digit]
            peers = [folding.ranks[place + (i - digit) * distance] for i in others]
            # The own sum and the first other are added, then the rest; of the two, the lower ranks' is left.
            pair = (1, mine) if digit > 0 else (mine, 1)
            sources = (*pair, *range(2, k))
            reduce_scatter.append(
                Round(
                    sends=tuple(
                        Message(peer, c, mine)
                        for i, peer in zip(others, peers, strict=True)
                        for c in parts[i]
                    ),
                    receives=tuple(
                        Message(peer, c, 1 + slot) for slot, peer in enumerate(peers) for c in parts[digit]
                    ),
                    sums=tuple(Sum(c, TOTAL, sources) for c in parts[digit]),
                )
            )
            allgather.append(
                Round(
                    sends=tuple(Message(peer, c, TOTAL) for peer in peers for c in parts[digit]),
                    receives=tuple(
                        Message(peer, c, TOTAL)
                        for i, peer in zip(others, peers, strict=True)
                        for c in parts[i]
                    ),
                )
            )
            first, mine = parts[digit].start, TOTAL
        return reduce_scatter + allgather[::-1]

    return folded(size, folding, inner, chunks, rest_last)
