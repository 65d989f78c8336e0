"""Finds the places where a sequence repeats the same items several times in a row, as a model repeats its layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np

GRAM = 6  # items that agree where a repetition may begin
TRIED = 64  # distances that are tried, the most frequent ones
LEAST = 3  # repetitions


@dataclass(frozen=True)
class Repeat:
    """`count` times the same `period` items, the first from item `begin` on."""

    begin: int
    period: int
    count: int

    @property
    def end(self) -> int:
        """The item after the last repetition."""
        return self.begin + self.period * self.count


def repeats(items: Sequence[Hashable], saved: int) -> list[Repeat]:
    """The repetitions in `items`, ascending and disjoint. Each has LEAST or more, and replaces at least `saved` items
    by the first one's."""
    codes: dict[Hashable, int] = {}
    row = np.array([codes.setdefault(item, len(codes)) for item in items], np.int64)
    waiting = [ranked(*run, distance) for distance in distances(row) for run in runs(row, distance)]
    heapify(waiting)
    free = np.ones(len(row), bool)
    chosen = []
    while waiting:
        _, period, begin, end = heappop(waiting)
        count = (end - begin) // period
        if count < LEAST or (count - 1) * period < saved:
            continue
        if free[begin:end].all():
            chosen.append(Repeat(begin, period, count))
            free[begin : chosen[-1].end] = False
            continue
        for low, high in stretches(free[begin:end]):
            heappush(waiting, ranked(begin + low, begin + high, period))
    return sorted(chosen, key=lambda each: each.begin)


def ranked(begin: int, end: int, period: int) -> tuple[int, int, int, int]:
    """(minus the items that it saves, period, begin, end) of a repetition."""
    return -((end - begin) // period - 1) * period, period, begin, end


def distances(row: np.ndarray) -> list[int]:
    """The distances at which items often repeat, ascending."""
    last: dict[bytes, int] = {}
    seen: Counter[int] = Counter()
    for at in range(len(row) - GRAM + 1):
        gram = row[at : at + GRAM].tobytes()
        if gram in last:
            seen[at - last[gram]] += 1
        last[gram] = at
    return sorted(distance for distance, _ in seen.most_common(TRIED))


def runs(row: np.ndarray, distance: int) -> list[tuple[int, int]]:
    """(begin, end) of the items that repeat with this period."""
    return [(begin, end + distance) for begin, end in stretches(row[distance:] == row[:-distance])]


def stretches(same: np.ndarray) -> list[tuple[int, int]]:
    """(begin, end) of each run of True."""
    edges = np.concatenate([[False], same, [False]])
    return [(int(a), int(b)) for a, b in np.flatnonzero(edges[1:] != edges[:-1]).reshape(-1, 2)]
