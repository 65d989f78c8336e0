"""Compares the data of each MPI call of a program under `fpna run` between two runs."""

from __future__ import annotations

import re

import pandas as pd

from analysis.divergence.steps import by_step
from analysis.load.frames import Frames
from analysis.runs import Id
from miniapps.trace.records import (
    ADDED,
    FETCHED,
    GLOBAL,
    ORIGIN,
    READ,
    RECEIVED,
    SENT,
    SOURCE,
    TOTAL,
    WINDOW,
    WRITTEN,
)

SIDES = {
    **dict.fromkeys((ADDED, SENT, WRITTEN, ORIGIN), "given"),
    **dict.fromkeys((TOTAL, RECEIVED, GLOBAL, READ, FETCHED, WINDOW), "got"),
    SOURCE: "sources",
}
OF_A_RANK = re.compile(
    r" by rank \d+ of \d+$|, \d+ \w+$"
)  # or the length and type of an array that all ranks hold
CALLS = ("call", "step", "given", "given_differing", "got", "got_differing", "sources", "sources_differing")


def by_call(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """Counts the inputs, outputs and message sources of each call that differ; columns CALLS, a row per call and site.

    `step` is the first step with a difference, -1 without one. Calls that differ come first, the earliest on top.
    """
    frame = by_step(frames, a, b)
    parts = frame["name"].astype("object").str.partition(":", expand=False)
    prefixes = parts.str[0].astype(str) + ":"
    kept = prefixes.isin(list(SIDES)) & parts.str[2].astype(str).str.contains(" at ", regex=False)
    frame = frame[kept].assign(side=prefixes[kept].map(SIDES))
    frame["call"] = parts[kept].str[2].astype(str).str.replace(OF_A_RANK, "", regex=True)
    rows = []
    for call, own in frame.groupby("call", sort=False):
        counts = own.groupby("side")[["elements", "differing"]].sum()
        first = own.loc[own["differing"] > 0, "step"].min()
        row = {"call": call, "step": -1 if pd.isna(first) else int(first)}
        for side in ("given", "got", "sources"):
            elements, differing = counts.loc[side] if side in counts.index else (0, 0)
            row |= {side: int(elements), f"{side}_differing": int(differing)}
        rows.append(row)
    table = pd.DataFrame(rows, columns=list(CALLS))
    return table.sort_values(
        "step", key=lambda step: step.where(step >= 0, 2**31), kind="stable", ignore_index=True
    )
