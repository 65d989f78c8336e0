"""Simulates forward in time how ranks work, wait for each other and go on.

`analysis.predict` gives the simulation the costs of a network and the work of other rank counts. `replay` takes the
measured work and a network without cost: it gives the time of a run without its communication.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from analysis.waiting.waits import Waits

Times = np.ndarray  # (size, ...): a time per rank, in any number of replays at once
Who = np.ndarray  # ranks that take part in a wait


def forward(
    order: Sequence[tuple[int, bool, bool]],
    begin: Times,
    who: Callable[[int], Who],
    before: Callable[[int], Times],
    inside: Callable[[int], Times],
    partners: Callable[[int], np.ndarray | None],
    cost: Callable[[int], Times | float] = lambda group: 0,
    after: Callable[[Times, Times, Who], Times] = lambda now, work, ranks: now + work,
    beside: Callable[[int], Times | float] = lambda group: 0,
    latest: Callable[[int], Times] | None = None,
    watch: Callable[[int, Times, Times], None] | None = None,
) -> Times:
    """The times at which ranks end their last wait: (size, ...).

    Each rank starts at `begin` and goes through `order`: nodes (group, posts, ends), where a group is the waits that
    belong together. The functions return for a group:

    who       the ranks that take part
    before    their work before they post
    inside    their work between posting and waiting
    partners  (size, k) the ranks for which each rank waits; None: all
    cost      the time of the messages once all have posted, in which a rank does nothing else
    beside    the time of the messages that pass while a rank works, before `cost`; of waits of all ranks
    latest    the latest end

    `after(now, work, ranks)` is the time at which work that begins at `now` is done. `watch(group, ready, done)` gets
    the times at which the ranks were ready and went on.

    Messages beside work pass one wait after the other, in the order of their posts. Messages of other waits go first,
    and delay them by their time.
    """
    now, free = begin.copy(), begin.copy()
    posted: dict[int, Times] = {}
    passing: dict[int, Times] = {}  # when the messages beside work have passed

    def last_of(group: int, times: Times, ranks: Who) -> Times:
        of = partners(group)
        if of is None:
            return times.max(axis=0)
        everyone = np.full(now.shape, np.iinfo(np.int64).min, now.dtype)
        everyone[ranks] = times
        return everyone[of[ranks]].max(axis=1)

    for group, posts, ends in order:
        ranks = who(group)
        if posts:
            now[ranks] = after(now[ranks], before(group), ranks)
            posted[group] = now[ranks]
            if not ends and np.any(through := beside(group)):
                passing[group] = free = last_of(group, np.maximum(now, free), ranks) + through
        if ends:
            mine = after(now[ranks], inside(group), ranks)
            begun = np.maximum(mine, last_of(group, posted.pop(group), ranks))
            if group in passing:
                done = np.maximum(begun, passing.pop(group)) + cost(group)
            else:
                done = begun + cost(group)
                for other, passed in passing.items():
                    passing[other] = passed + np.where(passed > begun, done - begun, 0)
                    free = np.maximum(free, passing[other])
            if watch is not None:
                watch(group, mine, done)
            now[ranks] = done if latest is None else np.minimum(done, latest(group))
    return now


def replay(waits: Waits) -> np.ndarray:
    """The time at which each rank would have ended on a network without cost: (size,) ns.

    Every rank spends its useful time as measured, beginning with its first event. A collective ends when the last rank
    has posted, an exchange when all partners have, and never before the rank has done the work inside it. Sending,
    receiving and adding received numbers take no time.

    No wait ends later than measured: clocks of nodes differ a little, and a partner that by its clock posted after the
    end of the wait would delay the replay beyond the run. So by induction the replay never takes longer than the run.
    """
    table = waits.table
    rank, posted, end = (table[key].to_numpy() for key in ("rank", "posted", "end"))
    group = table["group"].to_numpy()
    first = np.searchsorted(group, np.arange(len(waits.rows) + 1))
    names = waits.name_of
    useful: Mapping[str, np.ndarray] = {key: np.empty(len(table), np.int64) for key in ("post", "end")}
    for r, mine in enumerate(waits.by_rank):
        useful["post"][mine] = waits.useful(r, posted[mine])
        useful["end"][mine] = waits.useful(r, end[mine])
    done = np.zeros(waits.size, np.int64)  # useful time spent

    def rows(g: int) -> slice:
        return slice(first[g], first[g + 1])

    def spent_until(until: np.ndarray) -> Callable[[int], np.ndarray]:
        def work(g: int) -> np.ndarray:
            ranks, at = rank[rows(g)], until[rows(g)]
            work = at - done[ranks]
            done[ranks] = at
            return work

        return work

    ended = forward(
        waits.order,
        waits.begin,
        lambda g: rank[rows(g)],
        spent_until(useful["post"]),
        spent_until(useful["end"]),
        lambda g: waits.partners.get(names[g]),
        latest=lambda g: end[rows(g)],
    )
    return ended + useful_times(waits) - done


def useful_times(waits: Waits) -> np.ndarray:
    """(size,) ns of useful time of each rank."""
    return np.array([waits.useful(r, waits.finish[r : r + 1])[0] for r in range(waits.size)], np.int64)
