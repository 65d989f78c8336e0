"""Finds the time in a run of its first recorded divergence from another run."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.points import Point
from miniapps.trace import RankTrace
from miniapps.untrusted.text import printable


@dataclass(frozen=True)
class Mark:
    """An instant `at` (ns, on the clock of the timeline) on `rank`, with the name and arguments to display."""

    rank: int
    at: int
    name: str
    args: dict[str, object]


def mark_of(point: Point, table: str, repeat: int, trace: RankTrace, events: pd.DataFrame) -> Mark | None:
    """The mark of `point`, a row of `table` ("fingerprints" or "values") in `repeat`; None if there are no events.

    `trace` is the trace of the rank that recorded it, `events` the timeline of this rank. A row has no time, only the
    number of events that had ended before it. The mark is at the end of the last of these events, or at the first start
    if none had ended; `args` name this event and the next one to end.
    """
    rows = trace.tables[table]
    asked = {
        "repeat": repeat,
        "step": point.step,
        "name": trace.names.index(point.name),
        "block": point.block,
    }
    same = np.flatnonzero(np.all([rows[column] == value for column, value in asked.items()], axis=0))
    after = int(rows["after"][same[point.occurrence]])
    if events.empty:
        return None
    ended, coming = events[events["index"] < after], events[events["index"] >= after]
    # The index of an event is its place in the order of ends.
    last = ended.loc[ended["index"].idxmax()] if len(ended) else None
    following = coming.loc[coming["index"].idxmin()] if len(coming) else None
    at = events["start"].min() if last is None else last["end"]
    return Mark(
        point.rank_a, int(at), f"first divergence: {printable(point.name)}",
        {
            "step": point.step, "block": point.block,
            "recorded after": "the start" if last is None else printable(str(last["name"])),
            "recorded before": "the end" if following is None else printable(str(following["name"])),
        },
    )  # fmt: skip
