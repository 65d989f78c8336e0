"""Draw the intervals to execute again, and compute the probability that a wrong one is among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import groupby
from math import ceil, comb

from miniapps.trace.chain import Mark
from miniapps.verify.again import Interval

ALWAYS = 2  # the first and the last interval are always drawn


def drawn(seed: str, challenge: str, count: int, fraction: float) -> list[int]:
    """The numbers of the intervals to execute again, ascending: a `fraction` of `count`, rounded up.

    They are the first, the last and at least one other: those with the least SHA-256 of the `seed` (the last heads of
    the run), the `challenge` and their number. The author of the run cannot know them before the heads exist, nor
    choose heads that suit the draw before the challenge exists.
    """
    if count <= ALWAYS:
        return list(range(count))
    wanted = max(ALWAYS + 1, ceil(fraction * count))

    def ticket(number: int) -> bytes:
        return hashlib.sha256(f"fpna-verify-2\n{seed}\n{challenge}\n{number}".encode()).digest()

    inner = sorted(range(1, count - 1), key=ticket)
    return sorted([0, count - 1, *inner[: wanted - ALWAYS]])


def chance(count: int, taken: int, wrong: int) -> float:
    """The probability that `taken` drawn intervals of `count` contain at least one of `wrong` intervals.

    An author who knows that the first and the last are always drawn places the wrong ones among the others, if they
    have room.
    """
    inner, others = max(0, count - ALWAYS), max(0, taken - ALWAYS)
    if wrong > inner:
        return 1.0  # the first or the last is wrong
    return 1.0 - comb(inner - wrong, others) / comb(inner, others)


def split(
    intervals: list[Interval], published: Iterable[Mark] | None
) -> tuple[list[Interval], list[Interval]]:
    """(intervals up to the last `published` head of their repeat, later ones); (all, none) if `published` is None.

    Anyone who can write the files can still choose the later ones after the draw.
    """
    if published is None:
        return intervals, []
    last: dict[int, int] = {}
    for mark in published:
        last[mark.repeat] = max(mark.step, last.get(mark.repeat, -1))
    bound = [each.until <= last.get(each.repeat, -1) for each in intervals]
    return (
        [each for each, held in zip(intervals, bound, strict=True) if held],
        [each for each, held in zip(intervals, bound, strict=True) if not held],
    )


def by_repeat(intervals: Iterable[Interval]) -> list[list[Interval]]:
    """The intervals of each repeat, since each has its own chain."""
    return [list(own) for _, own in groupby(intervals, key=lambda each: each.repeat)]
