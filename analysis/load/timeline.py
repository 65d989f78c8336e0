"""What happened when: all events of a run, one by one, on the clock of rank 0.

`Frames.events` holds sums over (rank, step, name); what needs every event (critical paths, exports, pictures of a few
steps) reads it here, from the trace itself, for the ranks and steps in question.
"""

from __future__ import annotations

import os
from collections.abc import Collection

import numpy as np
import pandas as pd

from analysis.load.guard import read_run
from miniapps.trace import RankTrace, TraceError, traffic
from miniapps.trace.schema import COLLECTIVE, COMPUTE, EXCHANGE, KINDS, WAIT

TIMELINE = {"rank": "int32", "repeat": "int32", "step": "int32", "name": "category", "kind": "category",
            "start": "int64", "end": "int64", "bytes": "int64", "flops": "int64", "index": "int64",
            "depth": "int32"}  # fmt: skip
WITH_PARTNERS = (EXCHANGE, WAIT)  # kinds of regions that wait for some ranks
WAITING = (COLLECTIVE, *WITH_PARTNERS)  # for others at all


def timeline(
    run: str | os.PathLike,
    repeat: int | None = None,
    steps: Collection[int] | None = None,
    ranks: Collection[int] | None = None,
) -> pd.DataFrame:
    """Every event of the directory `run`, of one `repeat`, some `steps` and `ranks` where given; columns TIMELINE.

    `start` and `end` are ns on the clock of rank 0, less the start of the first event of all ranks in the run that were
    read; `index` is the place of the event in its rank's trace, which the column `after` of values and fingerprints
    refers to; `kind` is that of its region (`miniapps.trace.schema.KINDS`); `depth` counts the regions around it.
    Sorted by rank and start, outer regions first. Events that end before they start are left out. Raises TraceError
    where a rank is missing or cannot be read.
    """
    pieces = [_of_rank(trace) for trace in read_run(run, tables=["events"], ranks=ranks)]
    names = list(dict.fromkeys(name for piece in pieces for name in piece["name"].cat.categories))
    for piece in pieces:
        piece["name"] = piece["name"].cat.set_categories(names)
    if not pieces:
        raise TraceError(
            f"{run}: none of the ranks {sorted(ranks or ())}; a run has the ranks of its rank-*.h5"
        )
    events = pd.concat(pieces, ignore_index=True)
    origin = events["start"].min() if len(events) else 0
    events[["start", "end"]] -= origin
    keep = np.ones(len(events), bool)
    if repeat is not None:
        keep &= (events["repeat"] == repeat).to_numpy()
    if steps is not None:
        keep &= events["step"].isin(list(steps)).to_numpy()
    return events[keep].reset_index(drop=True).astype(TIMELINE)


def partners(run: str | os.PathLike) -> dict[str, dict[int, list[int]]]:
    """{name of a region: {rank: ranks with which it exchanges data there}}; regions that wait for all are not in it."""
    by_region: dict[str, dict[int, list[int]]] = {}
    for trace in read_run(run, tables=()):
        for name, ranks in trace.attributes.get("partners", {}).items():
            by_region.setdefault(name, {})[trace.attributes["rank"]] = ranks
    return by_region


def hosts(run: str | os.PathLike) -> list[str]:
    """The name of the node of each rank, "" where its trace does not say."""
    return traffic.hosts(sorted(read_run(run, tables=()), key=lambda trace: trace.attributes["rank"]))


def _of_rank(trace: RankTrace) -> pd.DataFrame:
    events, attributes = trace.tables["events"], trace.attributes
    index = np.flatnonzero(events["end"] >= events["start"])
    stated = attributes.get("regions", {})
    kinds = np.array([KINDS.index(stated.get(name, COMPUTE)) for name in trace.names], np.int8)
    first = int(events["start"][index[0]]) if len(index) else 0
    start, end = (_on_rank_0(events[key][index], first, attributes) for key in ("start", "end"))
    frame = pd.DataFrame(
        {
            "rank": attributes["rank"],
            **{key: events[key][index] for key in ("repeat", "step")},
            "name": pd.Categorical.from_codes(events["name"][index], trace.names),
            "kind": pd.Categorical.from_codes(kinds[events["name"][index]], KINDS),
            "start": start,
            "end": end,
            **{key: events[key][index] for key in ("bytes", "flops")},
            "index": index,
        }
    )
    # Of two that begin and end together the one around the other ended, and was recorded, after it.
    frame = frame.iloc[np.lexsort((-frame["index"], -end, start))]
    return frame.assign(depth=_depths(frame["start"].to_numpy(), frame["end"].to_numpy()))


def _on_rank_0(ns: np.ndarray, first: int, attributes: dict) -> np.ndarray:
    """Times of this rank as the clock of rank 0 shows them: less the offset, which drifts, by so many ns in a second,
    from the start of the first event on."""
    offset, drift = attributes.get("clock_offset_ns", 0.0), attributes.get("clock_drift", 0.0)
    if not (offset or drift):
        return ns
    return ns - np.rint(offset + drift * (ns - first) / 1e9).astype(np.int64)


def _depths(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many intervals are around each, of those sorted by start and then by falling end."""
    depths = np.zeros(len(start), np.int32)
    open_ends: list[int] = []
    for i, (begin, stop) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while open_ends and (open_ends[-1] <= begin or open_ends[-1] < stop):
            open_ends.pop()
        depths[i] = len(open_ends)
        open_ends.append(stop)
    return depths
