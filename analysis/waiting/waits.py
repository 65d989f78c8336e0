"""Finds the waits of one repeat: where each rank waited, for which ranks, and its work in the meantime.

A *wait* is an event of a collective or of an exchange. The k-th event of a name within a step matches the k-th on all
other ranks. Each wait has four times on its rank:

- `posted`: the time at which the rank had done its part for the others. It is the start of the event; for a region of
  the kind `wait` it is the start of the region around it, since messages leave there and the event only waits.
- `start` and `end` of the event.
- `idle`: the time from which the rank had no other work. It is the end of the last region inside the event (such as
  the work of a pipelined method while its sums travel), or the start of the event.

Time inside a wait, but in no region within it, is *communication*. All other time between the first and the last event
of a rank is *useful*, also local work inside a wait. So communication without an event counts as useful.
"""

from __future__ import annotations

import graphlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.load.timeline import WAITING, WITH_PARTNERS
from miniapps.trace.schema import WAIT

OUTSIDE = "(no region)"
BEFORE = "(before the first event)"
NONE = np.iinfo(np.int64).min

Partners = Mapping[str, Mapping[int, list[int]]]  # {region: {rank: ranks}}, as `timeline.partners` returns it


class Unmatched(Exception):
    """The waits of the ranks do not fit together; the message says why."""


@dataclass(frozen=True)
class Waits:
    """The waits of one repeat. `events` is sorted by rank and start; times are int64 ns from the first event.

    `table` has one row per wait, sorted by (group, rank). Beside `name`, `rank`, `step`, `posted`, `start`, `idle`,
    `end` and `bytes` it has the columns

    group  the waits that belong together
    own    ns of communication
    last   the time at which the last of the partners, or the rank itself, had posted
    who    the rank that posted last
    late   ns from `idle` until `last`, within the event: waiting for late ranks

    `rows` (groups, ranks) are row numbers of `table`, or -1. `partners` {name: (ranks, k)}, padded with the rank,
    has no names that wait for all ranks. `order` lists nodes (group, posts, ends) in a possible order.
    """

    size: int
    events: pd.DataFrame
    names: list[str]
    parent: np.ndarray  # row of the region around each event, -1 for none
    begin: np.ndarray  # (size,) first start of each rank
    finish: np.ndarray  # (size,) last end of each rank
    table: pd.DataFrame
    rows: np.ndarray
    partners: dict[str, np.ndarray]
    order: list[tuple[int, bool, bool]]
    busy: list[tuple[np.ndarray, np.ndarray, np.ndarray]]  # by rank, see `useful`

    @property
    def wall(self) -> int:
        """The time from the first event of any rank to the last, in ns."""
        return int(self.finish.max())

    @cached_property
    def by_rank(self) -> list[np.ndarray]:
        """The row numbers in `table` of each rank, ascending."""
        rank = self.table["rank"].to_numpy()
        return np.split(
            np.argsort(rank, kind="stable"), np.cumsum(np.bincount(rank, minlength=self.size))[:-1]
        )

    @cached_property
    def name_of(self) -> np.ndarray:
        """The name of each group, as text."""
        return _name_of(self.table)

    def useful(self, rank: int, times: np.ndarray) -> np.ndarray:
        """The useful time, in ns, that `rank` had spent at each of `times`."""
        at, spent, waiting = self.busy[rank]
        k = np.searchsorted(at, times, side="right") - 1
        return times - self.begin[rank] - (spent[k] + waiting[k] * (times - at[k]))

    def of_rank(self, rank: int) -> slice:
        """The rows of `events` of `rank`."""
        return slice(int(self._bounds[rank]), int(self._bounds[rank + 1]))

    @cached_property
    def _bounds(self) -> np.ndarray:
        """The first row of each rank in `events`, and the number of rows: (size + 1,)."""
        return np.append(0, np.cumsum(np.bincount(self.events["rank"].to_numpy(), minlength=self.size)))


def waits(events: pd.DataFrame, size: int, partners: Partners) -> Waits:
    """The waits in the `events` of one repeat, as `timeline` returns them, on ranks 0 ... size - 1.

    Raises Unmatched if a rank has no event, or if the orders of waits on the ranks contradict each other, so that the
    k-th wait of a name on one rank cannot match the k-th on another.
    """
    ranks = events["rank"].to_numpy()
    if missing := sorted(set(range(size)) - set(np.unique(ranks).tolist())):
        raise Unmatched(
            f"no event of rank {missing[0]}{f' and {len(missing) - 1} more' if missing[1:] else ''}"
        )
    start, end = (events[key].to_numpy() - events["start"].min() for key in ("start", "end"))
    events = events.assign(start=start, end=end)
    names = [str(name) for name in events["name"].cat.categories]
    code = events["name"].cat.codes.to_numpy()
    waiting = events["kind"].isin(WAITING).to_numpy()
    parent = _parents(ranks, start, end, events["depth"].to_numpy())
    rank_of = np.arange(size)
    first = np.searchsorted(ranks, rank_of)
    finish = np.maximum.reduceat(end, first)
    busy = _busy(start, end, waiting, parent, np.append(first, len(ranks)))
    table = _table(events, names, code, waiting, parent)
    some = set(events.loc[events["kind"].isin(WITH_PARTNERS), "name"].unique().astype("str"))
    groups = int(table["group"].max()) + 1 if len(table) else 0
    rows = np.full((groups, size), -1)
    rows[table["group"], table["rank"]] = np.arange(len(table))
    padded = {name: _padded(of, size) for name, of in partners.items() if name in some}
    table = _arrivals(table, rows, padded)
    return Waits(
        size, events, names, parent, start[first], finish, table, rows, padded, _order(table, size), busy
    )


def _parents(ranks: np.ndarray, start: np.ndarray, end: np.ndarray, depth: np.ndarray) -> np.ndarray:
    """The row of the event around each event; -1 if there is none."""
    parent = np.full(len(start), -1)
    for level in range(1, depth.max(initial=0) + 1):
        inner, outer = np.flatnonzero(depth == level), np.flatnonzero(depth == level - 1)
        if not len(outer):
            continue
        parents = outer[np.maximum(np.searchsorted(outer, inner) - 1, 0)]
        inside = (
            (ranks[parents] == ranks[inner]) & (start[parents] <= start[inner]) & (end[parents] >= end[inner])
        )
        parent[inner] = np.where(inside & (parents < inner), parents, -1)
    return parent


def _busy(start, end, waiting, parent, first) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each rank: times, the communication until each time, and 1 if communication follows it, else 0."""
    change = waiting.astype(np.int64) - (waiting[parent] & (parent >= 0))
    pieces = []
    for i, j in pairwise(first):
        some = np.flatnonzero(change[i:j]) + i
        at = np.concatenate([start[some], end[some]])
        order = np.argsort(at, kind="stable")
        at = at[order]
        # Waits that overlap without nesting count once.
        state = np.clip(np.cumsum(np.concatenate([change[some], -change[some]])[order]), 0, 1)
        spent = np.concatenate([[0], np.cumsum(state[:-1] * np.diff(at))]) if len(at) else at
        low = np.array([NONE // 4])
        pieces.append((np.append(low, at), np.append([0], spent), np.append([0], state)))
    return pieces


def _table(events, names, code, waiting, parent) -> pd.DataFrame:
    start, end = events["start"].to_numpy(), events["end"].to_numpy()
    idle, own = start.copy(), end - start
    inner = np.flatnonzero(parent >= 0)
    inner = inner[waiting[parent[inner]]]
    np.maximum.at(idle, parent[inner], end[inner])
    np.subtract.at(own, parent[inner], end[inner] - start[inner])
    posted = np.where((events["kind"] == WAIT).to_numpy() & (parent >= 0), start[parent], start)
    row = np.flatnonzero(waiting)
    table = events[["rank", "step", "name", "start", "end", "bytes", "index"]].iloc[row]
    table = table.assign(posted=posted[row], idle=idle[row], own=np.maximum(own[row], 0), code=code[row])
    call = table.groupby(["rank", "step", "code"], sort=False).cumcount().to_numpy()
    step, code = table["step"].to_numpy().astype(np.int64), table["code"].to_numpy().astype(np.int64)
    key = ((step - step.min(initial=0)) * len(names) + code) * (call.max(initial=0) + 1) + call
    _, group = np.unique(key, return_inverse=True)
    table = table.assign(group=group).drop(columns="code")
    return table.sort_values(["group", "rank"], kind="stable").reset_index(drop=True)


def _padded(of: Mapping[int, list[int]], size: int) -> np.ndarray:
    """The partners of each rank, padded with the rank itself: (size, k). A rank without an entry waits for all."""
    every = [[q for q in of.get(rank, range(size)) if q < size] for rank in range(size)]
    width = max(map(len, every), default=0) + 1
    return np.array([[*row, *[rank] * (width - len(row))] for rank, row in enumerate(every)], np.int64)


def _name_of(table: pd.DataFrame) -> np.ndarray:
    group = table["group"].to_numpy()
    first = np.flatnonzero(np.append(True, group[1:] != group[:-1])[: len(group)])
    return table["name"].iloc[first].astype("str").to_numpy(object)


def _arrivals(table: pd.DataFrame, rows: np.ndarray, partners: dict[str, np.ndarray]) -> pd.DataFrame:
    posted = np.where(rows >= 0, table["posted"].to_numpy()[rows] if len(table) else 0, NONE)
    of_group = _name_of(table)
    size = rows.shape[1]
    last, who = np.empty_like(rows), np.empty_like(rows)
    for name in dict.fromkeys(of_group):
        same = np.flatnonzero(of_group == name)
        given = posted[same]
        if name not in partners:
            who[same] = given.argmax(axis=1)[:, None]
            last[same] = given.max(axis=1)[:, None]
            continue
        best, by = given.copy(), np.broadcast_to(np.arange(size), given.shape).copy()
        for column in partners[name].T:
            later = given[:, column] > best
            best, by = np.where(later, given[:, column], best), np.where(later, column, by)
        last[same], who[same] = best, by
    at = table["group"].to_numpy(), table["rank"].to_numpy()
    table = table.assign(last=last[at], who=who[at])
    late = np.minimum(table["last"], table["end"]) - table["idle"]
    return table.assign(late=late.clip(lower=0).where(table["who"] != table["rank"], 0))


def _order(table: pd.DataFrame, size: int) -> list[tuple[int, bool, bool]]:
    """Posts and ends of groups in an order that agrees with the order of every rank.

    A group whose end follows its post directly on all ranks is one node. Raises Unmatched if there is no such order."""
    n = len(table)
    times = np.concatenate([table["posted"], table["end"]])
    rank, group, index = (np.tile(table[key].to_numpy(), 2) for key in ("rank", "group", "index"))
    kind = np.repeat(np.array([0, 1], np.int8), n)
    sequence = np.lexsort([kind, index, times, rank])
    node, by = (2 * group + kind)[sequence], rank[sequence]
    adjacent = np.zeros(len(node), bool)
    adjacent[1:] = (node[1:] == node[:-1] + 1) & (node[:-1] % 2 == 0) & (by[1:] == by[:-1])
    apart = np.zeros(int(group.max()) + 1 if n else 0, bool)
    ends = node % 2 == 1
    np.logical_or.at(apart, node[ends] // 2, ~adjacent[ends])
    keep = ~ends | apart[node // 2]
    node, by = node[keep], by[keep]
    step = np.flatnonzero(by[1:] == by[:-1])
    graph: dict[int, list[int]] = {int(i): [] for i in np.unique(node)}
    pairs = np.unique(node[step] * (node.max(initial=0) + 1) + node[step + 1])
    for before, after in zip(
        *(part.tolist() for part in np.divmod(pairs, node.max(initial=0) + 1)), strict=True
    ):
        graph[after].append(before)
    try:
        order = list(graphlib.TopologicalSorter(graph).static_order())
    except graphlib.CycleError as error:
        name = table["name"].iloc[int(np.searchsorted(table["group"], error.args[1][0] // 2))]
        raise Unmatched(
            f"its ranks went through their collectives and exchanges in different orders (near {name})"
        ) from error
    return [(i // 2, i % 2 == 0, bool(i % 2) or not apart[i // 2]) for i in order]
