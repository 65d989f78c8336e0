"""Reduce, reduce-scatter and allgather, made from the schedule of an all-reduce.

Reduce and reduce-scatter drop messages and sums on which the requested results do not depend, so their bits are those
of the all-reduce. Allgather follows each contribution through the schedule, and adds nothing. Both need the rounds of
all ranks: the first request for a rank's rounds computes them for all.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import lcm

from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum, evenly
from kernels.guarantees import ChoiceError

Programs = list[tuple[Round, ...]]  # the rounds of every rank
Place = tuple[int, int, int]  # rank, slot, chunk
# A message: sender, index and entry among its sends; receiver, index and entry among its receives.
Pair = tuple[int, int, Message, int, int, Message]


def reduce(schedule: Schedule, root: int) -> Schedule:
    """Returns a schedule with the total at rank `root` alone, with the bits of the all-reduce; others are undefined.

    Raises ChoiceError when there is no rank `root`.
    """
    if not 0 <= root < schedule.size:
        raise ChoiceError(f"root {root} is no rank: choose 0 ... {schedule.size - 1}")
    return _needed_only(schedule, 1, lambda chunk, part: root)


def part_of(n: int, size: int, rank: int, bounds: Sequence[int] | None = None) -> tuple[int, int]:
    """Elements [first, stop) that a rank gets of a reduce-scatter of n elements: equal parts, or those between
    bounds[rank] and bounds[rank + 1]."""
    return evenly(n, size, rank) if bounds is None else (bounds[rank], bounds[rank + 1])


def reduce_scatter(schedule: Schedule, bounds: Sequence[int] | None = None) -> Schedule:
    """Returns a schedule with elements `part_of(n, size, rank, bounds)` of the all-reduce's total at each rank.

    Other elements of the totals are undefined. Chunks are split so that each belongs to one rank: into equal parts if
    the schedule cuts the vector evenly and there are no bounds, else into a part for each rank, most of them empty. A
    uniform schedule with a chunk for each rank is cut at the bounds from the start. Raises ChoiceError unless there are
    `size` + 1 bounds.
    """
    size = schedule.size
    if bounds is not None and len(bounds) != size + 1:
        raise ChoiceError(
            f"bounds: {len(bounds)} numbers for {size} ranks; give {size + 1}: the start of each part, and the end "
            "of the last"
        )
    if schedule.cut is evenly and bounds is None:
        parts = lcm(schedule.chunks, size) // schedule.chunks
        each = schedule.chunks * parts // size
        kept = _needed_only(schedule, parts, lambda chunk, part: (chunk * parts + part) // each)
        return replace(kept, uniform=False)  # chunks have owners in the whole vector only

    if schedule.uniform and schedule.chunks == size:
        at_bounds = replace(
            schedule, cut=lambda n, chunks, chunk: part_of(n, size, chunk, bounds), uniform=False
        )
        return _needed_only(at_bounds, 1, lambda chunk, part: chunk)

    def cut(n: int, chunks: int, chunk: int) -> tuple[int, int]:
        first, stop = schedule.bounds(n, chunk // size)
        part = part_of(n, size, chunk % size, bounds)
        return min(max(part[0], first), stop), min(max(part[1], first), stop)

    return replace(_needed_only(schedule, size, lambda chunk, part: part), cut=cut, uniform=False)


def allgather(schedule: Schedule) -> Schedule:
    """Returns a schedule that copies elements evenly(n, size, rank) of each rank's contribution into all ranks' totals.

    The rest of a contribution is not read. Every rank receives every element once. If every rank is the first to
    complete equally many chunks of the all-reduce, elements spread from there: this is the second half of a
    reduce-scatter and allgather. Raises ChoiceError unless every rank has exactly one contribution.
    """
    size = schedule.size
    for rank in range(size):
        if len(schedule.leaves(rank)) != 1:
            raise ChoiceError(
                f"allgather: rank {rank} has {len(schedule.leaves(rank))} blocks in this ordering; give one to each "
                "rank, or choose an ordering over ranks"
            )
    fine = replace(_split(schedule, lcm(schedule.chunks, size) // schedule.chunks), cut=evenly)
    programs = cache(lambda: _gathered(fine, _owners(schedule)))
    return replace(fine, program=lambda rank: programs()[rank], leaves=lambda rank: (rank,), uniform=False)


def _split(schedule: Schedule, parts: int) -> Schedule:
    """Splits every chunk into `parts`. Even cuts nest: evenly(n, c*s, k*s) begins where evenly(n, c, k) does."""
    if parts == 1:
        return schedule

    def messages(given: tuple[Message, ...]) -> tuple[Message, ...]:
        return tuple(Message(m.peer, m.chunk * parts + i, m.slot) for m in given for i in range(parts))

    def program(rank: int) -> tuple[Round, ...]:
        return tuple(
            Round(
                messages(r.sends),
                messages(r.receives),
                tuple(Sum(s.chunk * parts + i, s.into, s.sources) for s in r.sums for i in range(parts)),
            )
            for r in schedule.program(rank)
        )

    return replace(schedule, chunks=schedule.chunks * parts, program=program)


def _pairs(current: tuple[Round, ...]) -> Iterator[Pair]:
    """The messages of a round, each as its sender and its receiver know it."""
    post: dict[tuple[int, int], deque] = defaultdict(deque)
    for rank, part in enumerate(current):
        for index, message in enumerate(part.sends):
            post[rank, message.peer].append((index, message))
    for rank, part in enumerate(current):
        for index, message in enumerate(part.receives):
            yield message.peer, *post[message.peer, rank].popleft(), rank, index, message


def _needed_only(schedule: Schedule, parts: int, owner: Callable[[int, int], int]) -> Schedule:
    """Keeps the steps that bring each part of each chunk of the total to `owner(chunk, part)`; splits chunks."""
    kept = cache(lambda: _kept(schedule, parts, owner))

    def split(chosen: tuple[list, list, list], index: int) -> tuple:
        # A rank's steps with a chunk, for the parts whose bits are set.
        return tuple(
            replace(step, chunk=step.chunk * parts + part)
            for step, bits in chosen[index]
            for part in range(parts)
            if bits >> part & 1
        )

    def program(rank: int) -> tuple[Round, ...]:
        return tuple(Round(*(split(current[rank], i) for i in range(3))) for current in kept())

    return replace(schedule, chunks=schedule.chunks * parts, program=program)


def _kept(
    schedule: Schedule, parts: int, owner: Callable[[int, int], int]
) -> list[list[tuple[list, list, list]]]:
    """The needed sends, receives and sums by round and rank, each with the parts of its chunk as bits.

    Works from the last round backwards: the sources of a needed place are needed.
    """
    needed: dict[Place, int] = defaultdict(int)
    for chunk in range(schedule.chunks):
        for part in range(parts):
            needed[owner(chunk, part), TOTAL, chunk] |= 1 << part
    rounds = []
    for current in reversed(list(zip(*schedule.ranks(), strict=True))):
        chosen: list[tuple[list, list, list]] = [([], [], []) for _ in current]
        for rank, part in enumerate(current):
            for s in reversed(part.sums):
                if bits := needed.pop((rank, s.into, s.chunk), 0):
                    chosen[rank][2].insert(0, (s, bits))
                    for source in s.sources:
                        needed[rank, source, s.chunk] |= bits
        # All places are written before any is read: sends read the state before the round.
        pairs = [(pair, needed.pop((pair[3], pair[5].slot, pair[5].chunk), 0)) for pair in _pairs(current)]
        sent, received = {}, {}
        for (sender, s_index, here, receiver, r_index, _), bits in pairs:
            if bits:
                needed[sender, here.slot, here.chunk] |= bits
                sent[sender, s_index] = received[receiver, r_index] = bits
        for rank, part in enumerate(current):
            chosen[rank][0].extend((m, sent[rank, i]) for i, m in enumerate(part.sends) if (rank, i) in sent)
            chosen[rank][1].extend(
                (m, received[rank, i]) for i, m in enumerate(part.receives) if (rank, i) in received
            )
        if any(any(part) for part in chosen):
            rounds.append(chosen)
    return rounds[::-1]


def _owners(schedule: Schedule) -> list[int] | None:
    """The first rank to complete each chunk, if there is one for each and all ranks have equally many."""
    counts: dict[Place, int] = {
        (rank, OWN, chunk): 1 for rank in range(schedule.size) for chunk in range(schedule.chunks)
    }
    owners: list[set[int]] = [set() for _ in range(schedule.chunks)]
    for current in zip(*schedule.ranks(), strict=True):
        first: dict[int, set[int]] = defaultdict(set)
        arriving = {
            (receiver, there.slot, there.chunk): counts[sender, here.slot, here.chunk]
            for sender, _, here, receiver, _, there in _pairs(current)
        }
        counts |= arriving
        for rank, part in enumerate(current):
            for s in part.sums:
                count = sum(counts[rank, source, s.chunk] for source in s.sources)
                counts[rank, s.into, s.chunk] = count
                if count == schedule.size:
                    first[s.chunk].add(rank)
        for chunk, ranks in first.items():
            owners[chunk] = owners[chunk] or ranks
    first_ranks = [next(iter(ranks)) for ranks in owners if len(ranks) == 1]
    each = {first_ranks.count(rank) for rank in range(schedule.size)}
    return first_ranks if len(first_ranks) == schedule.chunks and len(each) == 1 else None


def _gathered(schedule: Schedule, owners: list[int] | None) -> Programs:
    """The rounds in which each chunk goes from its one contributor to all other ranks, straight into their totals.

    `schedule` has a multiple of size chunks, of which each rank contributes equally many. With `owners` a rank
    contributes the chunks that it completes first, numbered anew; without, those that have its numbers.
    """
    size, each = schedule.size, schedule.chunks // schedule.size
    contributor = owners or [chunk // each for chunk in range(schedule.chunks)]
    by_rank = sorted(range(schedule.chunks), key=lambda chunk: (contributor[chunk], chunk))
    number = {chunk: i for i, chunk in enumerate(by_rank)}

    # Places where the all-reduce holds a sum with the contribution in it; and ranks that already have it.
    present: set[Place] = {(rank, OWN, chunk) for chunk, rank in enumerate(contributor)}
    having = [{rank} for rank in contributor]
    rounds: list[list[Round]] = []
    for current in zip(*schedule.ranks(), strict=True):
        sends: list[dict[int, Message]] = [{} for _ in range(size)]
        receives: list[dict[int, Message]] = [{} for _ in range(size)]
        arriving, other = set(), set()
        for sender, s_index, here, receiver, r_index, there in _pairs(current):
            chunk, place = there.chunk, (receiver, there.slot, there.chunk)
            if (sender, here.slot, chunk) not in present:
                other.add(place)
                continue
            arriving.add(place)
            if receiver not in having[chunk]:
                having[chunk].add(receiver)
                sends[sender][s_index] = Message(receiver, number[chunk], TOTAL if rounds else OWN)
                receives[receiver][r_index] = Message(sender, number[chunk], TOTAL)
        present = (present - other) | arriving
        for rank, part in enumerate(current):
            for s in part.sums:
                place = (rank, s.into, s.chunk)
                if any((rank, source, s.chunk) in present for source in s.sources):
                    present.add(place)
                else:
                    present.discard(place)
        if any(sends):
            rounds.append([Round(_ordered(sends[r]), _ordered(receives[r])) for r in range(size)])
    # Own chunks are copied in the first round, which reads them from the contribution.
    rounds = rounds or [[Round()] * size]
    for rank, part in enumerate(rounds[0]):
        own = tuple(Sum(rank * each + i, TOTAL, (OWN,)) for i in range(each))
        rounds[0][rank] = replace(part, sums=own)
    return [tuple(current[rank] for current in rounds) for rank in range(size)]


def _ordered(messages: dict[int, Message]) -> tuple[Message, ...]:
    """Messages by chunk for each peer, so that neighbours travel as one; peers in the order of the all-reduce."""
    peers = {peer: i for i, peer in enumerate(dict.fromkeys(messages[i].peer for i in sorted(messages)))}
    return tuple(sorted(messages.values(), key=lambda m: (peers[m.peer], m.chunk)))
