"""Every element is added in rank order, by one owner or, for short vectors, by every rank."""

from __future__ import annotations

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum


def exchange(size: int) -> Schedule:
    """Every rank sends its vector to all others, and each adds all of them in rank order: one round."""

    def program(rank: int) -> tuple[Round, ...]:
        # Rank q's vector is in slot q + 1. Starting behind the own rank, so that not all send to rank 0 first.
        others = [(rank + i) % size for i in range(1, size)]
        sources = tuple(OWN if q == rank else q + 1 for q in range(size))
        return (
            Round(
                sends=tuple(Message(q, 0, OWN) for q in others),
                receives=tuple(Message(q, 0, q + 1) for q in others),
                sums=(Sum(0, TOTAL, sources),),
            ),
        )

    return Schedule(size, 1, program, uniform=True)


@ordering(
    "direct",
    guarantee="run",
    why="every element is added in rank order by one owner; the rank count decides",
    short=exchange,
    contributions_meet=True,
)
def direct(size: int) -> Schedule:
    """Each rank gets its chunk from all, adds in rank order, sends the sum to all: least bytes, two steps.

    The same additions as `linear`, shared among the ranks. Short vectors go whole from each rank to all others.
    """

    def program(rank: int) -> tuple[Round, ...]:
        others = [(rank + i) % size for i in range(1, size)]
        sources = tuple(OWN if q == rank else q + 1 for q in range(size))
        scatter = Round(
            sends=tuple(Message(q, q, OWN) for q in others),
            receives=tuple(Message(q, rank, q + 1) for q in others),
            sums=(Sum(rank, TOTAL, sources),),
        )
        gather = Round(
            sends=tuple(Message(q, rank, TOTAL) for q in others),
            receives=tuple(Message(q, q, TOTAL) for q in others),
        )
        return scatter, gather

    return Schedule(size, size, program, uniform=True)
