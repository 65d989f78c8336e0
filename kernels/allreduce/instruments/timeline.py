"""A schedule round by round, for drawing: messages and sums, and which of them are totals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kernels.allreduce.schedule import OWN, TOTAL, Round, Schedule, transfers


@dataclass(frozen=True)
class Arrow:
    """A message: neighbouring chunks from `start` to before `stop`, each a sum of `count` contributions."""

    sender: int
    receiver: int
    start: int
    stop: int
    count: int
    total: bool
    place: int  # among the messages of this round between these two
    among: int


@dataclass(frozen=True)
class Dot:
    """A sum of `summands` values of chunks from `start` to before `stop` at a rank; one is a copy."""

    rank: int
    start: int
    stop: int
    summands: int
    total: bool


@dataclass(frozen=True)
class Band:
    """The messages and sums of a round."""

    arrows: list[Arrow] = field(default_factory=list)
    dots: list[Dot] = field(default_factory=list)


def bands(schedule: Schedule, n: int) -> list[Band]:
    """Messages and sums of all rounds for a vector of n > 0; chunks without elements are left out."""
    spans = [schedule.bounds(n, chunk) for chunk in range(schedule.chunks)]
    there = [chunk for chunk, (start, stop) in enumerate(spans) if stop > start]
    first = {spans[chunk][0]: chunk for chunk in there}
    last = {spans[chunk][1]: chunk for chunk in there}
    own = [schedule.leaves(rank) for rank in range(schedule.size)]
    everything = sum(map(len, own))
    # Of every rank: (slot, chunk) -> contributions in it
    held = [{(OWN - i, chunk): 1 for i in range(len(mine)) for chunk in there} for mine in own]
    result = []
    for current in zip(*schedule.ranks(), strict=True):
        band = Band()
        sent: dict[tuple[int, int], list[int]] = {}
        for rank, part in enumerate(current):
            counts = {(m.peer, m.chunk, m.slot): held[rank].get((m.slot, m.chunk), 0) for m in part.sends}
            for m in part.sends:
                sent.setdefault((rank, m.peer), []).append(counts[m.peer, m.chunk, m.slot])
            travelling = transfers(part.sends, spans.__getitem__)
            for t in travelling:
                chunks = range(first[t.start], last[t.stop] + 1)
                least = min(counts[t.peer, chunk, t.slot] for chunk in chunks if chunk in there)
                among = sum(other.peer == t.peer for other in travelling)
                band.arrows.append(
                    Arrow(rank, t.peer, chunks.start, chunks.stop, least, least == everything, t.tag, among)
                )
        for rank, part in enumerate(current):
            for m in part.receives:
                held[rank][m.slot, m.chunk] = sent[m.peer, rank].pop(0)
        for rank, part in enumerate(current):
            band.dots.extend(_dots(rank, part, held[rank], there, everything))
        result.append(band)
    return result


def _dots(rank: int, part: Round, held: dict, there: Sequence[int], everything: int) -> list[Dot]:
    """The sums of a rank in a round; like sums of neighbouring chunks become one."""
    dots = []
    for s in part.sums:
        if s.chunk in there:
            held[s.into, s.chunk] = sum(held[source, s.chunk] for source in s.sources)
            total = s.into == TOTAL and held[s.into, s.chunk] == everything
            dots.append((s, len(s.sources), total))
    alike = groupby(enumerate(dots), lambda item: (item[1][0].chunk - item[0], *item[1][1:]))
    result = []
    for (_, summands, total), same in alike:
        chunks = [s.chunk for _, (s, _, _) in same]
        result.append(Dot(rank, chunks[0], chunks[-1] + 1, summands, total))
    return result
