"""Links between nodes: how long the messages between each two of them were under way, and which link is slow."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.scaling.waits import Waits

LINKS = ("nodes", "exchanges", "taken_s", "share", "mb_per_s", "times", "slow")
SLOW_TIMES = 5.0  # the time of the fastest link
SLOW_SHARE = 0.1  # of the run time


def links(waits: Waits, hosts: Sequence[str]) -> pd.DataFrame:
    """One row for each two nodes whose ranks exchange data with each other, most time first; columns LINKS.

    An exchange ends for a rank when the messages of all its partners have come, so that each of its links took no longer
    than what is left of it after the last partner had begun. Of an exchange, `taken_s` has the least that any rank on
    either side shows: a slow link shows on all of them, and a fast one on those that wait for no other. `share` is of
    the run time, `mb_per_s` (1e6 bytes per second) the most that can have passed, for the trace knows what a rank sent
    to all its partners together. `times`: `taken_s` of an exchange over that of the fastest link. `slow`: at least
    SLOW_TIMES that, and SLOW_SHARE of the run time. `hosts`: the node of each rank.
    """
    table = waits.table
    nodes = list(dict.fromkeys(hosts))
    at = np.array([nodes.index(host) for host in hosts])
    rest = (table["own"] - table["late"]).clip(lower=0).to_numpy()
    sent = table["bytes"].to_numpy()
    found: dict[tuple[int, int], list[int]] = {}
    name_of = table.drop_duplicates("group").sort_values("group")["name"].astype("str").to_numpy()
    for name, partners in waits.partners.items():
        rows = waits.rows[name_of == name]
        across = np.zeros((waits.size, len(nodes)), bool)  # whether a rank has a partner in a node
        across[np.arange(waits.size)[:, None], at[partners]] = True
        for a, b in combinations(range(len(nodes)), 2):
            ranks = np.flatnonzero(((at == a) & across[:, b]) | ((at == b) & across[:, a]))
            if not len(ranks):
                continue
            own = rows[:, ranks]
            own = own[(own >= 0).any(axis=1)]
            if not len(own):
                continue
            taken = np.where(own >= 0, rest[own], np.iinfo(np.int64).max)
            least = taken.argmin(axis=1)
            total = found.setdefault((a, b), [0, 0, 0])
            total[0] += len(own)
            total[1] += int(taken[np.arange(len(own)), least].sum())
            total[2] += int(sent[own[np.arange(len(own)), least]].sum())
    frame = pd.DataFrame(
        [
            (f"{nodes[a]}, {nodes[b]}", count, ns / 1e9, ns / waits.wall, nbytes / ns * 1e3 if ns else np.nan)
            for (a, b), (count, ns, nbytes) in found.items()
        ],
        columns=list(LINKS[:5]),
    )
    each = frame["taken_s"] / frame["exchanges"]
    times = each / each.min() if len(each) > 1 and each.min() > 0 else each * np.nan
    slow = (times >= SLOW_TIMES) & (frame["share"] >= SLOW_SHARE)
    frame = frame.assign(times=times, slow=slow)
    return frame.sort_values(["taken_s", "nodes"], ascending=[False, True], ignore_index=True)


def slow_links(frame: pd.DataFrame) -> list[str]:
    """A sentence on each slow link in `frame`, as `links` returns it."""
    return [
        f"the link between {row.nodes.replace(', ', ' and ')} is slow: every exchange over it takes {row.times:.0f} times "
        f"that of the fastest link, {row.share:.0%} of the run time, at {row.mb_per_s:.3g} MB/s or less; ranks of these "
        "nodes wait for it, and others for these ranks"
        for row in frame[frame["slow"]].itertuples(index=False)
    ]
