"""Ranks that share cores: how fast one works follows from how many others work, or have waited for long.

A rank that waits leaves its core to those that work for a while, which calibrations measure. Then it takes an even
share, although it only looks for messages. So in a pipeline with short stages, where ranks wait in turns, those that
work have nearly a whole core; with long stages an even share.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from analysis.predict.simulation.noise import Quiet
from analysis.predict.simulation.replay import Step, simulate

SHARES = 8  # shares of a core for which a step is replayed
SHORTEST = 1e-12  # time, over that since the step began, or s within the first second


def share_of(step: Step, size: int, cores: int, leaves: float) -> float:
    """The fixed share of a core with which a step of `size` ranks without noise takes as long as it does on shared
    `cores` (`shared`)."""
    if size <= cores:
        return 1.0
    slower = np.linspace(1.0, size / cores, SHARES)
    taken = simulate([step], 1, size, Quiet(slower), np.ones(SHARES), np.random.default_rng(0)).wall
    return 1.0 / float(np.interp(shared(step, size, cores, leaves), taken, slower))


def shared(step: Step, size: int, cores: int, leaves: float) -> float:
    """Seconds of a step of `size` ranks without noise on `cores`: at each moment the ranks that work, and those that
    have waited for more than `leaves` seconds, share them evenly, at most a core each. Messages take as long as on any
    cores."""
    everyone = range(size)
    posted: list[dict[int, float]] = [{} for _ in step.waits]  # when each rank did
    partners = [
        [set(everyone)] * size if wait.partners is None else [set(own) for own in wait.partners.tolist()]
        for wait in step.waits
    ]
    now = 0.0

    def parts(rank: int) -> Iterator[tuple[float, float, int]]:
        """What a rank does, part by part: seconds of work, seconds of messages, and the wait whose partners must have
        posted before the next part, or -1."""
        for at, posts, ends in step.order:
            wait = step.waits[at]
            if posts:
                yield float(wait.before[rank]), 0.0, -1
                posted[at][rank] = now
            if ends:
                yield float(wait.inside[rank]), 0.0, at
                beside = 0.0 if wait.beside is None else float(wait.beside[rank])
                passed = max(posted[at][other] for other in partners[at][rank]) + beside
                yield 0.0, max(passed - now, 0.0) + float(wait.cost[rank]), -1
        yield float(step.tail[rank]), 0.0, -1

    ranks = [parts(rank) for rank in everyone]
    work, messages, waits = [0.0] * size, [0.0] * size, [-1] * size
    since = [inf] * size  # when a rank began to wait
    ended: set[int] = set()

    def ready(rank: int) -> bool:
        if rank in ended or max(work[rank], messages[rank]) > least:
            return False
        return waits[rank] < 0 or partners[waits[rank]][rank] <= posted[waits[rank]].keys()

    while len(ended) < size:
        least = SHORTEST * max(now, 1.0)  # shorter times are rounding
        going = [rank for rank in everyone if ready(rank)]
        for rank in going:
            following = next(ranks[rank], None)
            if following is None:
                ended.add(rank)
            else:
                work[rank], messages[rank], waits[rank] = following
        if going:  # what they posted may let others go on
            continue
        idle = [rank for rank in everyone if max(work[rank], messages[rank]) <= least]
        since = [min(since[rank], now) if rank in idle else inf for rank in everyone]
        late = [since[rank] + leaves - now for rank in idle]  # seconds until it takes its share
        busy = sum(own > least for own in work) + sum(own <= least for own in late)
        rate = min(1.0, cores / max(busy, 1))
        ahead = min(each for each in (*(own / rate for own in work), *messages, *late) if each > least)
        now += ahead
        work = [own - ahead * rate for own in work]
        messages = [own - ahead for own in messages]
    return now
