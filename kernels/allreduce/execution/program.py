"""The steps of one rank for a schedule and a length, in words of the vector, and the places of scratch slots.

A long vector is cut into segments that pass through the rounds one behind the other: round r of one segment comes after
round r + 1 of the segment before it. Every rank takes the steps in the same order, so that no two wait for each other.

Where words stand for numbers, the rank that completes a total rounds it. Then its elements travel: in the rounds behind
the last sum of any rank (`schedule.gathers_from`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from mpi4py import MPI

from kernels.allreduce.schedule import (
    OWN,
    TOTAL,
    Round,
    Schedule,
    Transfer,
    behind_last_sum,
    totals_alone_travel,
    transfers,
)

AHEAD = 2  # steps whose messages are under way at once

Bounds = Callable[[int], tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Combine:
    """words[into][start:stop] = the words of the sources, combined left to right."""

    into: int
    sources: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Step:
    """One round of one segment; `after` is the index of the previous step of the same segment, -1 for none.

    `gathers`: messages carry elements of the total. `loaded`: elements [start, stop) of contributions that become words
    before any message; `rounded`: elements of the total whose words are complete after the sums.
    """

    segment: int
    after: int
    receives: tuple[Transfer, ...]
    sends: tuple[Transfer, ...]
    sums: tuple[Combine, ...]
    gathers: bool = False
    loaded: tuple[tuple[int, int], ...] = ()
    rounded: tuple[tuple[int, int], ...] = ()


def agreed_gathers_from(comm: MPI.Comm, rounds: Sequence[Round]) -> int:
    """`schedule.gathers_from`, if each rank knows its own rounds only. Collective."""
    first = comm.allreduce(behind_last_sum(rounds), op=MPI.MAX)
    whole = comm.allreduce(totals_alone_travel(rounds[first:]), op=MPI.LAND)
    return first if whole else len(rounds)


def steps(
    schedule: Schedule, rank: int, n: int, width: int = 1, segments: int = 1, gathers: int | None = None
) -> list[Step]:
    """The steps of `rank` for a vector of n elements of `width` words, in the order in which they are to be begun.

    `gathers`: the round from which elements of the total travel (`gathers_from`); None: words travel in all rounds.
    """
    rounds = schedule.program(rank)
    words = [_bounds(schedule, n, width, segments, segment) for segment in range(segments)]
    elements = [_bounds(schedule, n, 1, segments, segment) for segment in range(segments)]
    own = [] if gathers is None else _completed(rounds[gathers:], schedule.chunks)
    result: list[Step] = []
    last = [-1] * segments
    for wave in range(len(rounds) + segments - 1):
        for segment in range(max(0, wave - len(rounds) + 1), min(segments, wave + 1)):
            index = wave - segment
            if gathers is not None and index >= gathers:
                step = replace(_step(rounds[index], elements[segment], segment, last[segment]), gathers=True)
            else:
                step = _step(rounds[index], words[segment], segment, last[segment])
            if gathers is not None and index == 0:
                step = replace(step, loaded=_joined(map(elements[segment], range(schedule.chunks))))
            if gathers is not None and index == gathers - 1:
                step = replace(step, rounded=_joined(map(elements[segment], own)))
            if step.receives or step.sends or step.sums or step.loaded or step.rounded:
                last[segment] = len(result)
                result.append(step)
    return result


def _completed(later: Sequence[Round], chunks: int) -> list[int]:
    """The chunks of the total that a rank has before the later rounds: it receives them in none of these, or sends them
    first. (A rank that owns all blocks gets its own chunks back.)"""
    first_sent, first_received = (
        {m.chunk: i for i, r in reversed(list(enumerate(later))) for m in getattr(r, way)}
        for way in ("sends", "receives")
    )
    never = len(later)
    return [
        chunk
        for chunk in range(chunks)
        if chunk not in first_received or first_sent.get(chunk, never) <= first_received[chunk]
    ]


def _joined(ranges: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Drops empty ranges [start, stop), and joins adjacent ones."""
    result: list[tuple[int, int]] = []
    for start, stop in ranges:
        if start == stop:
            continue
        if result and result[-1][1] == start:
            start = result.pop()[0]
        result.append((start, stop))
    return tuple(result)


def _bounds(schedule: Schedule, n: int, width: int, segments: int, segment: int) -> Bounds:
    """A function from a chunk to the words [start, stop) of its part in a segment."""

    def within(start: int, stop: int) -> tuple[int, int]:
        return start + (stop - start) * segment // segments, start + (stop - start) * (
            segment + 1
        ) // segments

    def of_uniform(chunk: int) -> tuple[int, int]:
        first, end = within(0, n)
        start, stop = schedule.bounds(end - first, chunk)
        return width * (first + start), width * (first + stop)

    def of_any(chunk: int) -> tuple[int, int]:
        start, stop = within(*schedule.bounds(n, chunk))
        return width * start, width * stop

    return of_uniform if schedule.uniform else of_any


def _step(current: Round, bounds: Bounds, segment: int, after: int) -> Step:
    sums = ((s, *bounds(s.chunk)) for s in current.sums)
    return Step(
        segment,
        after,
        tuple(transfers(current.receives, bounds)),
        tuple(transfers(current.sends, bounds)),
        tuple(Combine(s.into, s.sources, start, stop) for s, start, stop in sums if start < stop),
    )


class Memory:
    """The words behind the slots of the steps: the caller's contributions and total, and scratch of its own.

    Scratch holds only the part of a slot that is ever written. Segments that are never under way at the same time share
    it.
    """

    def __init__(self, steps: Sequence[Step], dtype: np.dtype):
        spans: dict[tuple[int, int], tuple[int, int]] = {}  # (segment, slot) -> first word, end
        for step in steps:
            written = [(t.slot, t.start, t.stop) for t in step.receives]
            for slot, start, stop in written + [(c.into, c.start, c.stop) for c in step.sums]:
                first, end = spans.get((step.segment, slot), (start, stop))
                spans[step.segment, slot] = min(first, start), max(end, stop)
        banks = banks_of(steps)
        lengths: dict[tuple[int, int], int] = {}
        for (segment, slot), (first, end) in spans.items():
            bank = segment % banks
            lengths[bank, slot] = max(lengths.get((bank, slot), 0), end - first)
        scratch = {key: np.empty(length, dtype) for key, length in lengths.items() if key[1] != TOTAL}
        self._scratch = {
            (segment, slot): (scratch[segment % banks, slot], first)
            for (segment, slot), (first, _) in spans.items()
            if slot != TOTAL
        }

    def view(
        self, own: Sequence[np.ndarray], total: np.ndarray, segment: int
    ) -> Callable[[int, int, int], np.ndarray]:
        """A function (slot, start, stop) -> words, for one segment; `own`: the contributions, all whole vectors."""

        def words(slot: int, start: int, stop: int) -> np.ndarray:
            if slot == TOTAL:
                return total[start:stop]
            if slot < TOTAL:
                return own[OWN - slot][start:stop]
            data, first = self._scratch[segment, slot]
            return data[start - first : stop - first]

        return words


def banks_of(steps: Sequence[Step]) -> int:
    """The most consecutive segments under way at once, counting segments with messages posted ahead."""
    ended = {step.segment: index for index, step in enumerate(steps)}
    most, newest = 1, 0
    for index, step in enumerate(steps):
        newest = max(newest, step.segment)
        oldest = min((s for s, end in ended.items() if end > index - AHEAD), default=newest)
        most = max(most, newest - oldest + 1)
    return most
