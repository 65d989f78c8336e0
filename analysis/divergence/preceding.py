"""Finds the events of one rank between two of its records."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.points import Point
from analysis.load.guard import read_run
from analysis.load.timeline import timeline
from miniapps.trace import RankTrace, TraceError
from miniapps.trace.records import INPUT, LEFT, PASSING
from miniapps.trace.schema import FILE, OTHER

# Kinds of regions that only read the state, or enclose other regions: their end explains no change.
NO_WORK = (OTHER, FILE)


@dataclass(frozen=True)
class Event:
    """One execution of a region by one rank.

    `call` numbers the events of this `name` in the step from 0, `index` those of the rank's trace. `start` and `end`
    are in ns from the first event of that rank, on the clock of rank 0."""

    rank: int
    repeat: int
    step: int
    name: str
    kind: str
    call: int
    index: int
    start: int
    end: int


@dataclass(frozen=True)
class Preceding:
    """The events of one rank before one of its records.

    since   the last earlier record of the same block (for a state: of the same state), as (step, name); None: none
    ended   the events that ended since then, in the order of their ends
    inside  the innermost region that was open at the record; None: none
    known   False if the trace has no events, or not their order
    """

    since: tuple[int, str] | None
    ended: tuple[Event, ...]
    inside: Event | None
    known: bool


def preceding(run: str, repeat: int, rank: int, point: Point) -> Preceding:
    """The events of `rank` before it recorded `point`; `known` is False if the trace does not have them."""
    nothing = Preceding(None, (), None, False)
    try:
        (trace,) = read_run(run, ("fingerprints", "values"), [rank])
    except (TraceError, ValueError):
        return nothing
    rows = _records(trace, repeat)
    here = rows[(rows["step"] == point.step) & (rows["name"] == point.name) & (rows["block"] == point.block)]
    if len(here) <= point.occurrence:
        return nothing
    at = here.iloc[point.occurrence]
    earlier = rows[
        ((rows["table"] == at["table"]) & (rows["row"] < at["row"])) | (rows["after"] < at["after"])
    ]
    earlier = earlier[earlier["block"] == point.block].sort_values(["after", "row"])
    if not point.name.startswith((*PASSING, INPUT)):  # records of this state only
        earlier = earlier[earlier["name"].isin([point.name, LEFT + point.name, INPUT + point.name])]
    since = earlier.iloc[-1] if len(earlier) else None
    first = 0 if since is None else int(since["after"])
    events = numbered(run, repeat, rank, {point.step} | ({int(since["step"])} if since is not None else {0}))
    if events.empty:
        return nothing
    ended = events[(events["index"] >= first) & (events["index"] < at["after"])].sort_values("index")
    before = events[events["index"] < at["after"]]
    last = before["end"].max() if len(before) else -1
    around = events[(events["index"] >= at["after"]) & (events["start"] <= last)].sort_values("index")
    return Preceding(
        None if since is None else (int(since["step"]), str(since["name"])),
        tuple(event_of(row) for row in ended.to_dict("records")),
        event_of(around.iloc[0]) if len(around) else None,
        True,
    )


def numbered(run: str, repeat: int, rank: int, steps: set[int]) -> pd.DataFrame:
    """The timeline of one rank in some steps, with the column `call`: the number of earlier events of the same name in
    the step. Empty if events were not recorded or cannot be read."""
    try:
        events = timeline(run, repeat, steps, [rank])
    except TraceError:
        return pd.DataFrame(columns=["index", "call"])
    call = events.sort_values("index").groupby(["step", "name"], observed=True).cumcount()
    return events.assign(call=call)


def nth(run: str, repeat: int, rank: int, step: int, name: str, call: int) -> Event | None:
    """The `call`-th event `name` of a rank in a step; None if the trace has none."""
    events = numbered(run, repeat, rank, {step})
    if events.empty:
        return None
    matches = events[(events["name"] == name) & (events["call"] == call)]
    return event_of(matches.iloc[0]) if len(matches) else None


def event_of(row) -> Event:
    """The Event of a row of `numbered`."""
    return Event(
        int(row["rank"]), int(row["repeat"]), int(row["step"]), str(row["name"]), str(row["kind"]),
        int(row["call"]),
        int(row["index"]), int(row["start"]), int(row["end"]),
    )  # fmt: skip


def _records(trace: RankTrace, repeat: int) -> pd.DataFrame:
    """Fingerprints and values of one rank: columns table, row, step, name, block, after."""
    names = np.array([*trace.names, ""], object)
    pieces = []
    for table, columns in trace.tables.items():
        keep = columns["repeat"] == repeat
        pieces.append(
            pd.DataFrame(
                {
                    "table": table, "row": np.flatnonzero(keep), "step": columns["step"][keep],
                    "name": names[columns["name"][keep]], "block": columns["block"][keep],
                    "after": columns["after"][keep],
                }
            )
        )  # fmt: skip
    return pd.concat(pieces, ignore_index=True)
