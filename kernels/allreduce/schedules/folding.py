"""Sizes that are no power of k: surplus ranks first give their vectors to others, and get the total at the end.

k^m ranks remain, the places, numbered from 0 in base k. The MPI libraries choose them in these two ways.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernels.allreduce.schedule import OWN, TOTAL, Cut, Message, Round, Schedule, Sum, evenly


@dataclass(frozen=True)
class Fold:
    """`ranks[place]` takes part and adds the vectors of the ranks `guests[place]`, ascending, to its own.

    `ordered`: from the last guest to the first, x[a] + (x[b] + own), which keeps rank order if guests stand before
    their host. Otherwise (x[a] + x[b]) + own.
    """

    k: int
    digits: int
    ranks: tuple[int, ...]
    guests: tuple[tuple[int, ...], ...]
    ordered: bool

    def sums(self, chunk: int, guests: int) -> tuple[Sum, ...]:
        """The additions of a host for one chunk; guest i is in slot i + 1."""
        slots = tuple(range(1, guests + 1))
        if not self.ordered:
            return (Sum(chunk, TOTAL, (*slots, OWN)),)
        own = (OWN, *[TOTAL] * (guests - 1))
        return tuple(Sum(chunk, TOTAL, pair) for pair in zip(reversed(slots), own, strict=True))


def neighbours(size: int, k: int) -> Fold:
    """The last rank of each of the first sets of k neighbours takes part, until few enough are left (k <= size)."""
    k = min(k, max(size, 2))
    digits, places = _power(size, k)
    full, rest = divmod(size - places, k - 1)
    ranks = [place * k + k - 1 if place < full else place + size - places for place in range(places)]
    count = [k - 1] * full + [rest] + [0] * places
    guests = [tuple(range(rank - n, rank)) for rank, n in zip(ranks, count, strict=False)]
    return Fold(k, digits, tuple(ranks), tuple(guests), ordered=True)


def wrap(size: int, k: int) -> Fold:
    """The first k^m ranks take part; each other rank goes to the place of its number modulo k^m."""
    digits, places = _power(size, k)
    guests = [tuple(range(place + places, size, places)) for place in range(places)]
    return Fold(k, digits, tuple(range(places)), tuple(guests), ordered=False)


FOLDS = {"neighbours": neighbours, "wrap": wrap}


def choose(size: int, k: int, how: str = "neighbours") -> Fold:
    """The fold of that name, for k of 2 or more."""
    return FOLDS[how](size, k)


def _power(size: int, k: int) -> tuple[int, int]:
    """The largest m with k^m <= size, and k^m."""
    digits, places = 0, 1
    while places * k <= size:
        digits, places = digits + 1, places * k
    return digits, places


def folded(
    size: int,
    fold: Fold,
    inner: Callable[[int, int], list[Round]],
    chunks: int = 1,
    cut: Cut = evenly,
) -> Schedule:
    """A schedule of `size` ranks around `inner(place, slot)`: the rounds of a place, whose sum is in `slot`.

    All places have the same number of rounds.
    """
    place_of = {rank: place for place, rank in enumerate(fold.ranks)}
    host_of = {guest: fold.ranks[place] for place, guests in enumerate(fold.guests) for guest in guests}
    every = range(chunks)

    def program(rank: int) -> tuple[Round, ...]:
        if size == 1:
            return (Round(sums=tuple(Sum(chunk, TOTAL, (OWN,)) for chunk in every)),)
        if rank in host_of:
            host = host_of[rank]
            return (
                Round(sends=tuple(Message(host, chunk, OWN) for chunk in every)),
                *[Round()] * len(inner(0, TOTAL)),
                Round(receives=tuple(Message(host, chunk, TOTAL) for chunk in every)),
            )
        place = place_of[rank]
        guests = fold.guests[place]
        rounds = inner(place, TOTAL if guests else OWN)
        if not host_of:
            return tuple(rounds)
        before = Round(
            receives=tuple(Message(guest, chunk, 1 + i) for i, guest in enumerate(guests) for chunk in every),
            sums=tuple(s for chunk in every for s in fold.sums(chunk, len(guests))) if guests else (),
        )
        after = Round(sends=tuple(Message(guest, chunk, TOTAL) for guest in guests for chunk in every))
        return (before, *rounds, after)

    return Schedule(size, chunks, program, cut=cut)
