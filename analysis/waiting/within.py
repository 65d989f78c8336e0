"""Finds the innermost region of a rank at every moment between two times."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.waiting.waits import BEFORE, OUTSIDE, Waits


def between(waits: Waits, rank: int, begin: np.ndarray, end: np.ndarray) -> pd.DataFrame:
    """The time of `rank` in each interval [begin, end) by innermost region.

    Columns `interval` (index into `begin`), `name`, `ns` > 0. Intervals (int64 ns) must be disjoint and ascending. Time
    in no region has the name OUTSIDE, time before the first event of the rank BEFORE: so the parts of an interval add
    up to its length."""
    times, state = _innermost(waits, rank)
    if not len(begin):
        return pd.DataFrame(
            {"interval": np.zeros(0, np.int64), "name": np.zeros(0, object), "ns": np.zeros(0, np.int64)}
        )
    edges = np.sort(np.concatenate([times, begin, end]), kind="stable")  # fast, since all three are sorted
    edges = edges[np.append(True, edges[1:] != edges[:-1])]
    low, length = edges[:-1], np.diff(edges)
    interval = np.searchsorted(begin, low, side="right") - 1
    inside = (interval >= 0) & (low < end[interval])
    k = np.searchsorted(times, low, side="right") - 1
    code = np.append(state, len(waits.names))[k]  # k = -1: before all times
    code[low < waits.begin[rank]] = len(waits.names) + 1
    table = pd.DataFrame({"interval": interval[inside], "code": code[inside], "ns": length[inside]})
    table = table.groupby(["interval", "code"], as_index=False)["ns"].sum()
    names = np.array([*waits.names, OUTSIDE, BEFORE], object)
    return pd.DataFrame({"interval": table["interval"], "name": names[table["code"]], "ns": table["ns"]})


def exclusive_means(waits: Waits) -> dict[str, float]:
    """{region: mean over ranks of its exclusive time in ns}, from the first event of any rank to the end of each rank.

    With OUTSIDE and BEFORE the means add up to the run time, less the mean time from the end of a rank to the end of
    the run."""
    total: dict[str, float] = {}
    for rank in range(waits.size):
        whole = between(waits, rank, np.array([0]), waits.finish[rank : rank + 1])
        for name, ns in zip(whole["name"], whole["ns"], strict=True):
            total[name] = total.get(name, 0.0) + ns / waits.size
    return total


def _innermost(waits: Waits, rank: int) -> tuple[np.ndarray, np.ndarray]:
    """(times, index of the innermost region from each time on; len(names) if there is none)."""
    rows = waits.of_rank(rank)
    events, parent = waits.events.iloc[rows], waits.parent[rows]
    start, end, depth = (events[key].to_numpy() for key in ("start", "end", "depth"))
    code = events["name"].cat.codes.to_numpy().astype(np.int64)
    some = np.flatnonzero(end > start)
    around = np.where(parent[some] >= 0, code[np.maximum(parent[some] - rows.start, 0)], len(waits.names))
    times = np.concatenate([start[some], end[some]])
    state = np.concatenate([code[some], around])
    begins = np.repeat([1, 0], len(some))
    # At equal times ends precede begins; the last end or begin in this order decides.
    nesting = np.concatenate([depth[some], -depth[some]])
    order = np.lexsort([nesting, begins, times])
    return times[order], state[order]
