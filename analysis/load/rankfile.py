"""Reads trace files; keeps all rows of values, fingerprints and other tables, and sums of events.

Only NumPy is imported, since the pool of readers imports this module once per process.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from analysis.load.columns import STORED
from analysis.load.keys import groups
from miniapps.trace import RankTrace, TraceError, read_all
from miniapps.trace.records import CHAIN
from miniapps.trace.schema import NAMED, TABLES

REQUIRED = ("app", "problem", "method", "guarantee", "rank", "size", "run_id", "complete")


@dataclass(frozen=True)
class Head:
    """The facts about one rank beside its rows.

    digest     the seal of its file; "" if the file was never closed
    spans      (repeats, 3) int64: repeat, first start and last end in ns
    ends       {repeat: last step}
    backwards  the number of events left out because they end before they start
    """

    path: Path
    attributes: dict[str, Any]
    digest: str
    spans: np.ndarray
    ends: dict[int, int]
    backwards: int

    @property
    def rank(self) -> int:
        return self.attributes["rank"]


@dataclass(frozen=True)
class Piece:
    """The contents of several files of one run.

    heads    a Head per rank, or the TraceError of a file that cannot be used
    names    the names to which the codes in `name` columns refer
    tables   {table: {column: array}}, rank after rank; `events` are summed over (rank, repeat, step, name)
    seconds  the time that reading each file took
    """

    heads: list[Head | TraceError]
    names: list[str]
    tables: dict[str, dict[str, np.ndarray]]
    seconds: dict[Path, float] = field(default_factory=dict)


def read_piece(paths: Iterable[Path]) -> Piece:
    """The contents of the trace files `paths`; an error in one file does not end a pool."""
    heads: list[Head | TraceError] = []
    traces: list[RankTrace] = []
    seconds: dict[Path, float] = {}
    for path in paths:
        begin = time.perf_counter()
        try:
            per_rank = read_all(path)
        except TraceError as error:
            heads.append(error)
            continue
        finally:
            seconds[path] = time.perf_counter() - begin
        for trace in per_rank:
            if missing := [key for key in REQUIRED if key not in trace.attributes]:
                reason = f"{path}: the attribute {', '.join(missing)} is missing; leave this run out"
                heads.append(TraceError(reason))
                continue
            _without_heads(trace)
            forward, backwards = _forward(trace.tables["events"])
            trace.tables["events"] = forward
            heads.append(Head(path, trace.attributes, trace.digest, _spans(forward), _ends(trace), backwards))
            traces.append(trace)
    return replace(_piece(heads, traces), seconds=seconds)


def nothing(error: TraceError) -> Piece:
    """The Piece of a file that cannot be read: its error, and no rows."""
    return _piece([error], [])


def exclusive(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The time of each interval outside the intervals nested in it; all int64 ns, in any order.

    Intervals are of one rank and nest as calls do, so the results add up to the time that any interval covers.
    If some overlap without nesting, the results are only estimates, and never below 0.
    """
    own = end - start
    # Empty intervals cover no time, and would make ties between starts and ends ambiguous.
    rows = np.flatnonzero(own > 0)
    rows = rows[np.lexsort((-end[rows], start[rows]))]
    begin, stop = start[rows], end[rows]
    # Depth: the number of earlier intervals that are still open.
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
    """Events summed over equal (rank, repeat, step, name): columns repeat, rank, step, name int32; count, total_ns,
    exclusive_ns, bytes, flops int64."""
    keys = ("rank", "repeat", "step", "name")
    order, first = groups(*(events[key] for key in keys))

    def total(column: np.ndarray) -> np.ndarray:
        return np.add.reduceat(column[order], first) if len(first) else np.empty(0, np.int64)

    start, end = _one_after_the_other(events)
    return {
        **{key: events[key][order[first]] for key in keys},
        "count": np.diff([*first, len(order)]).astype(np.int64),
        "total_ns": total(end - start),
        "exclusive_ns": total(exclusive(start, end)),
        "bytes": total(events["bytes"]),
        "flops": total(events["flops"]),
    }


def numbered(table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`table` with two more int32 columns.

    `occurrence` numbers rows of one (rank, repeat, step, name, block); `seq` is the place of the row's (name,
    occurrence) in its step, in the order in which the rank recorded them."""
    rank, repeat, step, name = (table[column] for column in ("rank", "repeat", "step", "name"))
    block = table.get("block", np.full(len(name), -1, np.int32))
    occurrence = count_before(rank, repeat, step, name, block)
    order, first = groups(rank, repeat, step, name, occurrence)
    # The order is stable: order[first] is the first recorded row of each (name, occurrence).
    leaders = np.sort(order[first])
    place = np.zeros(len(name), np.int32)
    place[leaders] = count_before(rank[leaders], repeat[leaders], step[leaders])
    seq = np.empty(len(name), np.int32)
    seq[order] = np.repeat(place[order[first]], np.diff([*first, len(order)]))
    return {**table, "occurrence": occurrence, "seq": seq}


def _piece(heads: list[Head | TraceError], traces: list[RankTrace]) -> Piece:
    names = list(dict.fromkeys(name for trace in traces for name in trace.names))
    codes = {name: code for code, name in enumerate(names)}
    tables = {table: _stacked(table, traces, codes) for table in TABLES}
    for table, rows in tables.items():
        if table == "events":
            tables[table] = summed(rows)
        elif "occurrence" in STORED[table]:
            tables[table] = numbered(rows)
    return Piece(heads, names, tables)


def _stacked(table: str, traces: list[RankTrace], codes: dict[str, int]) -> dict[str, np.ndarray]:
    """The rows of all `traces`, one after the other, with the column `rank`; takes them out of `traces`.

    `codes` {name: code in the result}."""
    columns: dict[str, list] = {key: [] for key in ("rank", *TABLES[table])}
    for trace in traces:
        rows = trace.tables.pop(table)
        columns["rank"].append(np.full(len(rows["name"]), trace.attributes["rank"], np.int32))
        local = np.array([codes[name] for name in trace.names], np.int32)
        for key in TABLES[table]:
            own = rows.pop(key)
            columns[key].append(local[own] if key in NAMED and len(local) else own)
    if not traces:
        return {key: np.empty(0, TABLES[table].get(key, "int32")) for key in columns}
    if table == "order":
        columns["ranks"] = [_rows_as_bytes(orders) for orders in columns["ranks"]]
    return {key: joined(pieces) for key, pieces in columns.items()}


def joined(parts: list[np.ndarray]) -> np.ndarray:
    """The concatenation of `parts`; a single part is not copied, since large tables leave no room for a copy."""
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _rows_as_bytes(orders: np.ndarray) -> np.ndarray:
    """Rows of uint16 `orders` (n, size) as n bytes objects, equal ones shared."""
    known: dict[bytes, bytes] = {}
    packed = np.empty(len(orders), object)
    for i, row in enumerate(np.ascontiguousarray(orders, "<u2")):
        packed[i] = known.setdefault(key := row.tobytes(), key)
    return packed


def _one_after_the_other(events: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(start, end) of the events, shifted rank by rank so that no two ranks overlap; rows must be rank by rank."""
    rank, start, end = events["rank"], events["start"], events["end"]
    if not len(rank) or rank[0] == rank[-1]:
        return start, end
    first = np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))
    low, high = np.minimum.reduceat(start, first), np.maximum.reduceat(end, first)
    ends = np.cumsum(high - low + 1)
    shift = np.repeat(ends - high, np.diff(first, append=len(rank)))
    return start + shift, end + shift


def count_before(*columns: np.ndarray) -> np.ndarray:
    """For each row, the number of earlier rows that are equal in all `columns`: int32."""
    order, first = groups(*columns)
    rows = len(order)
    count = np.empty(rows, np.int32)
    count[order] = np.arange(rows) - np.repeat(first, np.diff([*first, rows]))
    return count


def _forward(events: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
    """Events that end when or after they start, and the number of the others."""
    keep = events["end"] >= events["start"]
    if keep.all():
        return events, 0
    return {column: rows[keep] for column, rows in events.items()}, int((~keep).sum())


def _without_heads(trace: RankTrace) -> None:
    """Removes the heads of the chain: each depends on all earlier records, and the command `chain` compares them."""
    codes = [code for code, name in enumerate(trace.names) if name.startswith(CHAIN)]
    for table in ("fingerprints", "values") if codes else ():
        columns = trace.tables[table]
        keep = ~np.isin(columns["name"], codes)
        trace.tables[table] = {column: rows[keep] for column, rows in columns.items()}


def _spans(events: dict[str, np.ndarray]) -> np.ndarray:
    rows = []
    for repeat, here in _by_repeat(events["repeat"]):
        rows.append((repeat, events["start"][here].min(), events["end"][here].max()))
    return np.array(rows, np.int64).reshape(-1, 3)


def _ends(trace: RankTrace) -> dict[int, int]:
    """{repeat: last step} over all tables of one rank."""
    ends: dict[int, int] = {}
    for table in trace.tables.values():
        for repeat, here in _by_repeat(table["repeat"]):
            ends[repeat] = max(ends.get(repeat, -1), int(table["step"][here].max()))
    return ends


def _by_repeat(repeats: np.ndarray) -> list[tuple[int, slice | np.ndarray]]:
    """[(repeat, a slice or mask of its rows)]; a slice in the usual case of a single repeat."""
    if not len(repeats):
        return []
    if repeats[0] == repeats[-1] and (repeats == repeats[0]).all():
        return [(int(repeats[0]), slice(None))]
    return [(repeat, repeats == repeat) for repeat in np.unique(repeats).tolist()]
