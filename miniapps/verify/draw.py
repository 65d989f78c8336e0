"""Which intervals between heads are executed again, and how likely wrong ones are among them."""

from __future__ import annotations

import hashlib
from math import ceil, comb


def drawn(head: str, challenge: str, count: int, fraction: float) -> list[int]:
    """The intervals of `count` that are executed again, ascending: the first, the last, and of the others those whose
    SHA-256 with the run's last `head` and the `challenge` is least; a `fraction` in all, rounded up.

    Who computed the run cannot know them before the head is there, nor choose it by them without the challenge.
    """
    if count <= 2:
        return list(range(count))
    wanted = max(2, ceil(fraction * count))

    def ticket(number: int) -> bytes:
        return hashlib.sha256(f"fpna-verify-1\n{head}\n{challenge}\n{number}".encode()).digest()

    inner = sorted(range(1, count - 1), key=ticket)
    return sorted([0, count - 1, *inner[: wanted - 2]])


def chance(count: int, taken: int, wrong: int) -> float:
    """The probability that of `taken` drawn among `count` intervals one is among `wrong`, wherever these are."""
    return 1.0 - comb(count - wrong, taken) / comb(count, taken)
