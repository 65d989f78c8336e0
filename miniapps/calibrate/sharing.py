"""What ranks that wait leave of their cores to others, where ranks share cores.

A rank that waits looks for messages without a pause, and still a rank that works has the core to itself for a while.
Later it has an even share. So in each group of ranks that shares a core one rank works at a time, and the others wait
for a message. How long its work takes says for how long it had the core to itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Hashable, Sequence
from functools import partial

import numpy as np

from miniapps.calibrate.cases import Case
from miniapps.system.environment import boot
from miniapps.trace.schema import OTHER
from miniapps.trace.writer import Tracer

TURN, BURST = "turn", "burst"  # the region of a rank's work; the value of a trace with its seconds
BURST_S = 0.005  # CPU time of a turn: longer than a time slice, so that ranks that wait take some
SECONDS = 0.5  # of the turns of a small group, if its ranks share the core evenly; a large one has a turn of each rank


def sharing_cases(ctx) -> list[Case]:
    """The case of ranks that work in turns, if ranks share cores; none otherwise. Collective."""
    places = places_of(ctx.comm, boot())
    if not crowded(places):
        return []
    here = [rank for rank, place in enumerate(places) if place == places[ctx.rank]]
    own = -(-len(here) // len(places[ctx.rank][1]))  # ranks of a core
    first = here.index(ctx.rank) // own * own
    return [
        Case(
            TURN,
            lambda: None,
            {},
            record=partial(_take_turns, comm=ctx.comm, group=here[first : first + own]),
        )
    ]


def places_of(comm, machine: Hashable) -> list[tuple[Hashable, tuple[int, ...]]]:
    """The `machine` of each rank, and the cores that it may use there. Collective."""
    found: list[tuple[Hashable, tuple[int, ...]]]
    found = comm.allgather((machine, tuple(sorted(os.sched_getaffinity(0)))))
    return found


def crowded(places: Sequence[tuple[Hashable, tuple[int, ...]]]) -> bool:
    """Whether more ranks use some cores than there are."""
    return any(places.count(place) > len(place[1]) for place in places)


def _take_turns(tracer: Tracer, comm, group: list[int]) -> None:
    """Work when this rank of a group has the token, and wait for it meanwhile. Records each burst of work."""
    tracer.value(BURST, BURST_S)
    region, clock = tracer.name(TURN, OTHER), tracer.clock
    size, place, token = len(group), group.index(comm.rank), np.zeros(1)
    turns = max(int(SECONDS / BURST_S / size), size) // size * size
    comm.Barrier()
    for turn in range(place, turns if size > 1 else 0, size):
        if turn > 0:
            comm.Recv(token, group[place - 1])
        start, end = clock(), time.thread_time() + BURST_S
        while time.thread_time() < end:
            pass
        tracer.event(region, start)
        if turn + 1 < turns:
            comm.Send(token, group[(place + 1) % size])
