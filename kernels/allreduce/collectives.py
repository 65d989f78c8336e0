"""Reduce, reduce-scatter and allgather, made from the schedule of an all-reduce.

Reduce and reduce-scatter leave out whatever the results that are asked for do not depend on, so their bits are those
of the all-reduce. Allgather follows the way of every contribution through the schedule, and adds nothing. All ranks'
rounds are needed to tell, so they are made together, when the first of them is asked for.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import lcm

from kernels.allreduce.schedule import OWN, TOTAL, Message, Round, Schedule, Sum, evenly
from kernels.guarantees import ChoiceError

Programs = list[tuple[Round, ...]]  # the rounds of every rank
Place = tuple[int, int, int]  # rank, slot, chunk
Pair = tuple[
    int, int, Message, int, int, Message
]  # sender, index and message there; receiver, index, message


def reduce(schedule: Schedule, root: int) -> Schedule:
    """The total at rank `root` alone, with the bits of the all-reduce; what other ranks' totals hold is undefined.

    Raises ChoiceError when there is no rank `root`.
    """
    if not 0 <= root < schedule.size:
        raise ChoiceError(f"root {root} is no rank: choose 0 ... {schedule.size - 1}")
    needed = {(root, TOTAL, chunk) for chunk in range(schedule.chunks)}
    return _on_demand(schedule, lambda: _needed_only(list(schedule.ranks()), needed))


def reduce_scatter(schedule: Schedule) -> Schedule:
    """Elements evenly(n, size, rank) of the total at each rank, with the bits of the all-reduce.

    What else the totals hold is undefined. Chunks are split so that each belongs to one rank. Where the schedule cuts
    the vector evenly, they are the equal parts of chunks; else the parts of each chunk that each rank gets, of which
    most are empty.
    """
    size = schedule.size
    if schedule.cut is evenly:
        fine = _split(schedule, lcm(schedule.chunks, size) // schedule.chunks)
        each = fine.chunks // size
        needed = {(chunk // each, TOTAL, chunk) for chunk in range(fine.chunks)}
    else:

        def cut(n: int, chunks: int, chunk: int) -> tuple[int, int]:
            first, stop = schedule.bounds(n, chunk // size)
            part = evenly(n, size, chunk % size)
            return min(max(part[0], first), stop), min(max(part[1], first), stop)

        fine = replace(_split(schedule, size), cut=cut)
        needed = {(chunk % size, TOTAL, chunk) for chunk in range(fine.chunks)}
    return _on_demand(fine, lambda: _needed_only(list(fine.ranks()), needed))


def allgather(schedule: Schedule) -> Schedule:
    """Elements evenly(n, size, rank) of each rank's contribution, at those elements of the total on all ranks.

    The rest of a contribution is not read. Every rank receives every element once. Where each rank is the first to
    have the total of as many chunks as any other, it gathers from there: the second half of a reduce-scatter and
    allgather. Raises ChoiceError for a schedule in which a rank has not one contribution.
    """
    size = schedule.size
    for rank in range(size):
        if len(schedule.leaves(rank)) != 1:
            raise ChoiceError(
                f"allgather: rank {rank} has {len(schedule.leaves(rank))} blocks in this ordering; give one to each "
                "rank, or choose an ordering over ranks"
            )
    fine = replace(_split(schedule, lcm(schedule.chunks, size) // schedule.chunks), cut=evenly)
    gathered = _on_demand(fine, lambda: _gathered(fine, _owners(schedule)))
    return replace(gathered, leaves=lambda rank: (rank,))


def _on_demand(schedule: Schedule, make: Callable[[], Programs]) -> Schedule:
    programs = cache(make)
    return replace(schedule, program=lambda rank: programs()[rank])


def _split(schedule: Schedule, parts: int) -> Schedule:
    """Every chunk in `parts` of its own; cut evenly they lie within it, since evenly(n, c*s, k*s) begins where
    evenly(n, c, k) does."""
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


def _needed_only(programs: Programs, needed: set[Place]) -> Programs:
    """What the places in `needed` depend on at the end, found from the last round backwards."""
    needed = set(needed)
    kept: list[list[Round]] = []
    for current in reversed(list(zip(*programs, strict=True))):
        sums = []
        for rank, part in enumerate(current):
            mine = []
            for s in reversed(part.sums):
                if (rank, s.into, s.chunk) in needed:
                    needed.remove((rank, s.into, s.chunk))
                    needed.update((rank, source, s.chunk) for source in s.sources)
                    mine.append(s)
            sums.append(tuple(reversed(mine)))
        pairs = [pair for pair in _pairs(current) if (pair[3], pair[5].slot, pair[5].chunk) in needed]
        # All are received before anything is added to what is needed: sends read the state before the round.
        needed -= {(receiver, message.slot, message.chunk) for *_, receiver, _, message in pairs}
        needed |= {(sender, message.slot, message.chunk) for sender, _, message, *_ in pairs}
        sent = {(sender, index) for sender, index, *_ in pairs}
        received = {(receiver, index) for *_, receiver, index, _ in pairs}
        kept.append(
            [
                Round(
                    tuple(m for i, m in enumerate(part.sends) if (rank, i) in sent),
                    tuple(m for i, m in enumerate(part.receives) if (rank, i) in received),
                    sums[rank],
                )
                for rank, part in enumerate(current)
            ]
        )
    rounds = [current for current in reversed(kept) if any(part != Round() for part in current)]
    return [tuple(current[rank] for current in rounds) for rank in range(len(programs))]


def _owners(schedule: Schedule) -> list[int] | None:
    """The rank that is the first to have the total of each chunk, if all ranks are that of as many chunks."""
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
    found = [next(iter(ranks)) for ranks in owners if len(ranks) == 1]
    each = {found.count(rank) for rank in range(schedule.size)}
    return found if len(found) == schedule.chunks and len(each) == 1 else None


def _gathered(schedule: Schedule, owners: list[int] | None) -> Programs:
    """Each chunk on its way from the one rank that contributes it to all others, into their totals at once.

    `schedule` has a multiple of size chunks, of which each rank contributes the next few: those whose totals it
    `owns`, which are numbered anew, or with no owners those that have its numbers.
    """
    size, each = schedule.size, schedule.chunks // schedule.size
    contributor = owners or [chunk // each for chunk in range(schedule.chunks)]
    by_rank = sorted(range(schedule.chunks), key=lambda chunk: (contributor[chunk], chunk))
    number = {chunk: i for i, chunk in enumerate(by_rank)}

    # Where the contribution would be part of what the all-reduce holds; and the ranks that have it by now.
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
    """By chunk for each peer, so that neighbours travel as one; peers in the order of the all-reduce."""
    peers = {peer: i for i, peer in enumerate(dict.fromkeys(messages[i].peer for i in sorted(messages)))}
    return tuple(sorted(messages.values(), key=lambda m: (peers[m.peer], m.chunk)))
