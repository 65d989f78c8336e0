"""One rank adds all contributions one after the other: in rank order, or in any other."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

from kernels.allreduce.ordering import ordering
from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum


@ordering("linear", guarantee="run", why="rank 0 adds in rank order; the rank count decides")
def linear(size: int) -> Schedule:
    """Gather at rank 0, sum in rank order, broadcast: the plainest fixed order, not a fast one."""
    return in_order(size, range(size))


@ordering(
    "reverse", guarantee="run", why="rank 0 adds from the last rank to the first; the rank count decides"
)
def reverse(size: int) -> Schedule:
    """As `linear`, from the last rank to the first: shows the effect of another order on the bits."""
    return in_order(size, range(size)[::-1])


@ordering(
    "permuted",
    guarantee="run",
    why="rank 0 adds in an order drawn from the seed; the seed and the rank count decide",
)
def permuted(size: int, *, seed: int = 0) -> Schedule:
    """As `linear`, in an order of the ranks drawn from a seed: a repeatable sample of `arrival`.

    Ranks are sorted by a hash of seed, size and rank, which no version of any library changes.
    """

    def drawn(rank: int) -> bytes:
        return blake2b(f"{seed} {size} {rank}".encode()).digest()

    return in_order(size, sorted(range(size), key=drawn))


def in_order(size: int, order: Sequence[int]) -> Schedule:
    """As `linear`, in a given order of the ranks: the additions of `arrival` in that order.

    Raises ValueError when `order` is no permutation of the ranks.
    """
    order = tuple(int(rank) for rank in order)
    if sorted(order) != list(range(size)):
        raise ValueError(f"order {order} is no permutation of the ranks 0 ... {size - 1}")

    def program(rank: int) -> tuple[Round, ...]:
        if rank:
            return Round(sends=(Message(0, 0, OWN),)), Round(receives=(Message(0, 0, TOTAL),))
        others = range(1, size)
        return (
            Round(
                receives=tuple(Message(q, 0, q) for q in others),
                sums=(Sum(0, TOTAL, tuple(q or OWN for q in order)),),
            ),
            Round(sends=tuple(Message(q, 0, TOTAL) for q in others)),
        )

    return Schedule(size, 1, program, uniform=True)
