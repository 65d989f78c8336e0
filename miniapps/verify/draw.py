"""Which intervals between heads are executed again, and how likely wrong ones are among them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from itertools import groupby
from math import ceil, comb

from miniapps.trace.chain import Mark
from miniapps.verify.again import Interval

ALWAYS = 2  # intervals that are always drawn: the first and the last


def drawn(seed: str, challenge: str, count: int, fraction: float) -> list[int]:
    """The intervals of `count` that are executed again, ascending: the first, the last, and of the others those whose
    SHA-256 with the `seed`, of the run's last heads, and the `challenge` is least; a `fraction` in all, rounded up, and
    one of the others at least.

    Who computed the run cannot know them before the heads are there, nor choose heads by them without the challenge.
    """
    if count <= ALWAYS:
        return list(range(count))
    wanted = max(ALWAYS + 1, ceil(fraction * count))

    def ticket(number: int) -> bytes:
        return hashlib.sha256(f"fpna-verify-2\n{seed}\n{challenge}\n{number}".encode()).digest()

    inner = sorted(range(1, count - 1), key=ticket)
    return sorted([0, count - 1, *inner[: wanted - ALWAYS]])


def chance(count: int, taken: int, wrong: int) -> float:
    """The probability that of `taken` drawn among `count` intervals one is among `wrong` ones that somebody placed who
    knows that the first and the last are always drawn, and not which others: among the others, as far as they have
    room."""
    inner, others = max(0, count - ALWAYS), max(0, taken - ALWAYS)
    if wrong > inner:
        return 1.0  # there is no room but in the first or the last
    return 1.0 - comb(inner - wrong, others) / comb(inner, others)


def split(
    intervals: list[Interval], published: Iterable[Mark] | None
) -> tuple[list[Interval], list[Interval]]:
    """(those up to the last `published` head of their repeat, later ones); all and none where nothing was published.
    Whoever can write the files can choose later ones after the draw."""
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
    """The intervals of each repeat, which has a chain of its own."""
    return [list(own) for _, own in groupby(intervals, key=lambda each: each.repeat)]
