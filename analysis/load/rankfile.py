"""Reads the trace of one rank and keeps what analysis needs: every bit, and the events summed up.

Only NumPy is imported, since the pool of readers imports this module once per process.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from miniapps.trace import TraceError, read

REQUIRED = ("app", "problem", "method", "guarantee", "rank", "size", "run_id", "complete")


@dataclass(frozen=True)
class RankData:
    """One rank's file. `tables` holds columns: `events` summed over (repeat, step, name), `values`,
    `fingerprints` and `order` row by row; `spans` (repeats, 3) int64: repeat, first start and last end in ns;
    `backwards`: events left out because they end before they start."""

    path: Path
    attributes: dict[str, Any]
    names: list[str]
    tables: dict[str, dict[str, np.ndarray]]
    spans: np.ndarray
    backwards: int


def read_rank(path: Path) -> RankData | TraceError:
    """The trace file at `path`, or the TraceError that says why it cannot be used (returned, so that one bad
    file does not end a pool)."""
    try:
        trace = read(path)
    except TraceError as error:
        return error
    if missing := [key for key in REQUIRED if key not in trace.attributes]:
        return TraceError(f"{path}: the attribute {', '.join(missing)} is missing; leave this run out")
    events, backwards = _forward(trace.tables["events"])
    tables = {
        "events": summed(events),
        "values": _numbered(trace.tables["values"]),
        "fingerprints": _numbered(trace.tables["fingerprints"]),
        "order": _numbered(trace.tables["order"]),
    }
    return RankData(path, trace.attributes, trace.names, tables, _spans(events), backwards)


def exclusive(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The part of each interval that no interval inside it covers; all int64 ns, in any order.

    Intervals are those of one rank and nest as calls do, so that the parts add up to the time covered by any.
    Where some overlap without nesting the parts are only estimates, and never below 0.
    """
    own = end - start
    # Empty intervals cover nothing, and would make ties between starts and ends ambiguous.
    rows = np.flatnonzero(own > 0)
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    begin, stop = start[rows], end[rows]
    # Depth: how many of those that began before are still open.
    depth = np.arange(len(rows)) - np.searchsorted(np.sort(stop), begin, side="right")
    covered = np.zeros(len(rows), np.int64)
    for level in range(1, depth.max(initial=0) + 1):
        inner, outer = np.flatnonzero(depth == level), np.flatnonzero(depth == level - 1)
        parent = outer[np.searchsorted(outer, inner) - 1]
        np.add.at(covered, parent, np.maximum(np.minimum(stop[inner], stop[parent]) - begin[inner], 0))
    own = own.copy()
    own[rows] = np.maximum(own[rows] - covered, 0)
    return own


def summed(events: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Events summed over equal (repeat, step, name): columns repeat, step, name int32; count, total_ns,
    exclusive_ns, bytes int64."""
    order, first = _groups(events["repeat"], events["step"], events["name"])

    def total(column: np.ndarray) -> np.ndarray:
        return np.add.reduceat(column[order], first) if len(first) else np.empty(0, np.int64)

    return {
        **{column: events[column][order][first] for column in ("repeat", "step", "name")},
        "count": np.diff([*first, len(order)]).astype(np.int64),
        "total_ns": total(events["end"] - events["start"]),
        "exclusive_ns": total(exclusive(events["start"], events["end"])),
        "bytes": total(events["bytes"]),
    }


def _groups(*columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The stable order that sorts the rows by `columns` (most significant first), and where in it each group
    of equal rows begins."""
    order = np.lexsort(columns[::-1])
    new = np.ones(len(order), bool)
    new[1:] = np.any([column[order][1:] != column[order][:-1] for column in columns], axis=0)
    return order, np.flatnonzero(new)


def _count_before(*columns: np.ndarray) -> np.ndarray:
    """For each row, how many earlier rows equal it in all `columns`: int32."""
    order, first = _groups(*columns)
    rows = len(order)
    count = np.empty(rows, np.int32)
    count[order] = np.arange(rows) - np.repeat(first, np.diff([*first, rows]))
    return count


def _numbered(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`table` with two more int32 columns: `occurrence`, which tells apart rows of one (repeat, step, name,
    block), and `seq`, the place of the row's (name, occurrence) in its step as it was recorded."""
    repeat, step, name = (table[column] for column in ("repeat", "step", "name"))
    block = table.get("block", np.full(len(name), -1, np.int32))
    occurrence = _count_before(repeat, step, name, block)
    order, first = _groups(repeat, step, name, occurrence)
    # `_groups` is stable: order[first] are the rows that recorded each (name, occurrence) first.
    leaders = np.sort(order[first])
    place = np.zeros(len(name), np.int32)
    place[leaders] = _count_before(repeat[leaders], step[leaders])
    seq = np.empty(len(name), np.int32)
    seq[order] = np.repeat(place[order[first]], np.diff([*first, len(order)]))
    return {**table, "occurrence": occurrence, "seq": seq}


def _forward(events: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Events that end when or after they start, and the number of the others."""
    keep = events["end"] >= events["start"]
    return {column: rows[keep] for column, rows in events.items()}, int((~keep).sum())


def _spans(events: dict[str, np.ndarray]) -> np.ndarray:
    repeats = np.unique(events["repeat"])
    rows = [events["repeat"] == repeat for repeat in repeats]
    return np.array(
        [(r, events["start"][k].min(), events["end"][k].max()) for r, k in zip(repeats, rows, strict=True)],
        np.int64,
    ).reshape(-1, 3)
