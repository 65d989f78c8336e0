"""A run on a network that costs nothing: its trace replayed with the local work as measured."""

from __future__ import annotations

import numpy as np

from analysis.scaling.waits import NONE, Waits


def replay(waits: Waits) -> np.ndarray:
    """(size,) ns at which each rank would have ended if communication cost nothing of its own.

    Every rank spends its useful time as measured, beginning with its first event. A collective ends when the last rank
    has posted, an exchange when all partners have, and never before the rank has done the work inside it. Whatever else
    a wait cost, sending, receiving and adding up what was received, takes no time.

    No wait ends later than it was measured to: clocks of nodes differ by a little, and a partner that by its clock
    posted after the wait was over would otherwise delay the replay beyond the run. So by induction the replay never
    takes longer than the run.
    """
    table = waits.table
    rank, posted, end = (table[key].to_numpy() for key in ("rank", "posted", "end"))
    group = table["group"].to_numpy()
    first = np.searchsorted(group, np.arange(len(waits.rows) + 1))
    names = table["name"].astype(str).to_numpy()[first[:-1]] if len(table) else []
    at_post, at_end = np.empty(len(table), np.int64), np.empty(len(table), np.int64)
    for r in range(waits.size):
        mine = np.flatnonzero(rank == r)
        at_post[mine] = waits.useful(r, posted[mine])
        at_end[mine] = waits.useful(r, end[mine])
    now, done = waits.begin.copy(), np.zeros(waits.size, np.int64)  # ideal time, useful time spent
    arrivals = np.full((len(waits.rows), waits.size), NONE)
    for g, posts, ends in waits.order:
        rows = slice(first[g], first[g + 1])
        ranks = rank[rows]
        if posts:
            now[ranks] += at_post[rows] - done[ranks]
            done[ranks] = at_post[rows]
            arrivals[g, ranks] = now[ranks]
        if ends:
            mine = now[ranks] + at_end[rows] - done[ranks]
            done[ranks] = at_end[rows]
            partners = waits.partners.get(names[g])
            last = arrivals[g].max() if partners is None else arrivals[g][partners[ranks]].max(axis=1)
            now[ranks] = np.minimum(np.maximum(mine, last), end[rows])
    return now + useful_times(waits) - done


def useful_times(waits: Waits) -> np.ndarray:
    """(size,) ns of useful time of each rank."""
    return np.array([waits.useful(r, waits.finish[r : r + 1])[0] for r in range(waits.size)], np.int64)
