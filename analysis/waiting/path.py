"""Finds the critical path of one repeat: the chain of local work and waits that determined the run time.

The path is followed backward from the last event of the run (Böhme et al. 2012, "Scalable critical-path based
performance analysis"). It goes along a rank to its last wait for a late rank, from the end of this wait back to the
time at which the late rank posted, there changes to that rank, and so on to the first event. In a wait without a late
rank it stays on its rank. The pieces follow each other without a gap, so they add up to the run time exactly.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.waiting.waits import Waits
from analysis.waiting.within import between, exclusive_means
from kernels.as_json import Column

PIECES = ("rank", "begin", "end", "group")
REGIONS = {
    "name": Column("str"), "path_s": Column("float64", "on the path", "s"),
    "share": Column("float64", "of the run time"),
    "mean_s": Column("float64", "mean over ranks of its exclusive time", "s"),
    "gain_s": Column("float64", "what evening it out would save at most", "s"),
}  # fmt: skip
RANKS = {
    "rank": Column("int64"), "path_s": Column("float64", "on the path", "s"),
    "share": Column("float64", "of the run time"),
}  # fmt: skip


def critical_path(waits: Waits) -> pd.DataFrame:
    """The pieces of the path in order of time: columns PIECES, all int64.

    `begin` and `end` are ns; `group` is the wait by which the path goes on to the next rank, -1 for the last piece. The
    first piece begins at 0, the last ends at `waits.wall`."""
    table = waits.table
    rank, who, group = (table[key].to_numpy() for key in ("rank", "who", "group"))
    last, end = (table[key].to_numpy() for key in ("last", "end"))
    # The places of each row's post and end in `order`.
    place_post, place_end = np.empty(len(table), np.int64), np.empty(len(table), np.int64)
    for place, (g, posts, ends) in enumerate(waits.order):
        rows = waits.rows[g]
        rows = rows[rows >= 0]
        if posts:
            place_post[rows] = 2 * place
        if ends:
            place_end[rows] = 2 * place + 1
    # If clocks disagree, a rank may seem to post after others went on: it delayed no rank.
    held = np.flatnonzero((table["late"].to_numpy() > 0) & (last <= end))
    held = held[np.lexsort([place_end[held], rank[held]])]
    first = np.searchsorted(rank[held], np.arange(waits.size + 1))
    by_rank = [held[i:j] for i, j in pairwise(first)]
    places = [place_end[rows].tolist() for rows in by_rank]

    pieces = []
    here, until, next_group = int(waits.finish.argmax()), waits.wall, -1
    place = 2 * len(waits.order) + 2
    while True:
        k = bisect_left(places[here], place) - 1
        if k < 0:
            pieces.append((here, 0, until, next_group))
            break
        row = by_rank[here][k]
        pieces.append((here, int(last[row]), until, next_group))
        next_group, until, here = int(group[row]), int(last[row]), int(who[row])
        place = int(place_post[waits.rows[next_group, here]])
    return pd.DataFrame(pieces[::-1], columns=list(PIECES)).astype("int64")


def composition(waits: Waits, path: pd.DataFrame) -> pd.DataFrame:
    """Time on the `path` by region and rank: columns `rank`, `name`, `path_ns`. The sum is the run time."""
    pieces = []
    for rank, own in path[path["end"] > path["begin"]].groupby("rank"):
        parts = between(waits, int(rank), own["begin"].to_numpy(), own["end"].to_numpy())
        pieces.append(parts.groupby("name", as_index=False)["ns"].sum().assign(rank=int(rank)))
    whole = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=["rank", "name", "ns"])
    return whole.rename(columns={"ns": "path_ns"})[["rank", "name", "path_ns"]]


def path_regions(waits: Waits, parts: pd.DataFrame) -> pd.DataFrame:
    """The time on the path by region, most time first: columns REGIONS. `parts` is the result of `composition`.

    `mean_s` is the mean over ranks of the exclusive time of the region. `gain_s` = path_s - mean_s, if positive, is the
    most that an even distribution of this region over the ranks could save (the critical imbalance of Böhme et al.)."""
    by = parts.groupby("name", as_index=False)["path_ns"].sum()
    means = exclusive_means(waits)
    path_s, mean_s = by["path_ns"] / 1e9, by["name"].map(means).astype("float64").fillna(0.0) / 1e9
    table = pd.DataFrame(
        {"name": by["name"], "path_s": path_s, "share": by["path_ns"] / waits.wall, "mean_s": mean_s,
         "gain_s": (path_s - mean_s).clip(lower=0.0)}
    )  # fmt: skip
    return table.sort_values(["path_s", "name"], ascending=[False, True], ignore_index=True)


def path_ranks(waits: Waits, parts: pd.DataFrame) -> pd.DataFrame:
    """The time on the path by rank, for all ranks: columns RANKS. `parts` is the result of `composition`."""
    by = parts.groupby("rank")["path_ns"].sum().reindex(range(waits.size), fill_value=0).astype("int64")
    return pd.DataFrame(
        {"rank": range(waits.size), "path_s": by.to_numpy() / 1e9, "share": by.to_numpy() / waits.wall}
    )
