"""The timeline of a run: all events, one by one, on the clock of rank 0.

`Frames.events` holds sums over (rank, step, name). Critical paths, exports and timelines of a few steps need single
events; they read them here, from the trace itself, for the requested ranks and steps.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np
import pandas as pd

from analysis.load.guard import read_run
from analysis.load.stated import partners_of
from analysis.load.watch import SILENT, Watch
from miniapps.trace import RankTrace, TraceError
from miniapps.trace.schema import COLLECTIVE, COMPUTE, EXCHANGE, KINDS, WAIT
from miniapps.untrusted.text import printable

TIMELINE = {"rank": "int32", "repeat": "int32", "step": "int32", "name": "category", "kind": "category",
            "start": "int64", "end": "int64", "bytes": "int64", "flops": "int64", "index": "int64",
            "depth": "int32"}  # fmt: skip
WITH_PARTNERS = (EXCHANGE, WAIT)  # kinds of regions that wait for some ranks
WAITING = (COLLECTIVE, *WITH_PARTNERS)  # kinds of regions that wait for any other rank


def timeline(
    run: str | os.PathLike,
    repeat: int | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
    origin: int | None = None,
    watch: Watch = SILENT,
) -> pd.DataFrame:
    """The events of the directory `run`, if given only of one `repeat`, these `steps` and `ranks`; columns TIMELINE.

    `start` and `end` are ns on the clock of rank 0, less `origin` (None: the start of the first event of all ranks that
    were read); `index` is the place of the event in its rank's trace, which the column `after` of values and
    fingerprints refers to; `kind` is that of its region (`miniapps.trace.schema.KINDS`); `depth` counts the regions
    around it. Sorted by rank and start, outer regions first. Events that end before they start are left out. `watch`
    shows the progress. Raises TraceError if a rank is missing or cannot be read.
    """
    pieces: list[dict[str, np.ndarray]] = []
    names: dict[str, int] = {}
    begins: list[int] = []
    for trace in read_run(run, tables=["events"], ranks=ranks):
        size = trace.attributes["size"]
        watch.step(len(pieces), size, f"reading rank {len(pieces) + 1} of {size} of {printable(str(run))}")
        columns = of_rank(trace, names)
        begins += columns["start"][:1].tolist()
        keep = np.ones(len(columns["start"]), bool)
        if repeat is not None:
            keep &= columns["repeat"] == repeat
        if steps is not None:
            keep &= np.isin(columns["step"], list(steps))
        pieces.append(columns if keep.all() else {key: column[keep] for key, column in columns.items()})
    if not pieces:
        raise TraceError(
            f"{run}: none of the ranks {sorted(ranks or ())}; a run has the ranks of its rank-*.h5"
        )
    # Column by column, so that only one column is in memory beside the frame.
    events = {key: np.concatenate([piece.pop(key) for piece in pieces]) for key in TIMELINE}
    for key in ("start", "end"):
        events[key] -= min(begins, default=0) if origin is None else origin
    events["name"] = pd.Categorical.from_codes(events["name"], list(names))
    events["kind"] = pd.Categorical.from_codes(events["kind"], KINDS)
    return pd.DataFrame(events, copy=False)


def partners(run: str | os.PathLike) -> dict[str, dict[int, list[int]]]:
    """{region: {rank: ranks with which it exchanges data there}}, without regions that wait for all ranks."""
    stated = (trace.attributes for trace in read_run(run, tables=()))
    return partners_of({"partners": {}} | own for own in stated)


def of_rank(trace: RankTrace, names: dict[str, int]) -> dict[str, np.ndarray]:
    """The events of a rank as the columns TIMELINE, sorted by start.

    `name` is a code of `names`, to which new names are added; `kind` is an index of KINDS."""
    events, attributes = trace.tables["events"], trace.attributes
    codes = np.array([names.setdefault(name, len(names)) for name in trace.names], np.int32)
    index = np.flatnonzero(events["end"] >= events["start"])
    stated = attributes.get("regions", {})
    kinds = np.array([KINDS.index(stated.get(name, COMPUTE)) for name in trace.names], np.int8)
    first = int(events["start"][index[0]]) if len(index) else 0
    start, end = (_on_rank_0(events[key][index], first, attributes) for key in ("start", "end"))
    # If two begin and end together, the outer one was recorded later.
    order = np.lexsort((-index, -end, start))
    index, start, end = index[order], start[order], end[order]
    name = events["name"][index]
    return {
        "rank": np.full(len(index), attributes["rank"], np.int32),
        **{key: events[key][index].astype(np.int32) for key in ("repeat", "step")},
        "name": codes[name] if len(codes) else name, "kind": kinds[name] if len(kinds) else name.astype(np.int8),
        "start": start, "end": end, **{key: events[key][index] for key in ("bytes", "flops")},
        "index": index.astype(np.int64), "depth": _depths(start, end),
    }  # fmt: skip


def span(trace: RankTrace) -> list[int]:
    """[earliest start, latest end] of a rank's events, ns on the clock of rank 0; empty without events."""
    events = trace.tables["events"]
    forward = events["end"] >= events["start"]
    start, end = events["start"][forward], events["end"][forward]
    if not len(start):
        return []
    first = int(start[0])
    return [
        int(_on_rank_0(start, first, trace.attributes).min()),
        int(_on_rank_0(end, first, trace.attributes).max()),
    ]


def _on_rank_0(ns: np.ndarray, first: int, attributes: dict) -> np.ndarray:
    """Times of this rank on the clock of rank 0: less the offset, which drifts by `clock_drift` ns per second after
    `first`, the start of the first event."""
    offset, drift = attributes.get("clock_offset_ns", 0.0), attributes.get("clock_drift", 0.0)
    if not (offset or drift):
        return ns
    return ns - np.rint(offset + drift * (ns - first) / 1e9).astype(np.int64)


def _depths(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """The number of intervals around each; intervals are sorted by start, then by descending end."""
    if (end > start).all():  # vectorised, if they nest as calls do
        known = np.arange(len(start)) - np.searchsorted(np.sort(end), start, side="right")
        keys = known * len(start) + np.arange(len(start))
        ordered = np.sort(keys)
        around = ordered[np.searchsorted(ordered, keys - len(start)) - 1] % max(len(start), 1)
        if (end <= np.where(known > 0, end[around], end)).all():
            return known.astype(np.int32)
    depths = np.zeros(len(start), np.int32)
    open_ends: list[int] = []
    for i, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while open_ends and (open_ends[-1] <= begin or open_ends[-1] < stop):
            open_ends.pop()
        depths[i] = len(open_ends)
        open_ends.append(stop)
    return depths
