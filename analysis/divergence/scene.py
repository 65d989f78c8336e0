"""Finds the records, events and stated reductions of two runs around their first difference."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.divergence import preceding, rounding, sized
from analysis.divergence.points import Comparison, Point
from analysis.divergence.preceding import Event, Preceding
from analysis.load.frames import Frames
from kernels import bits
from miniapps.trace.records import OF_WINDOWS, READ, SENT, SOURCE, TOTAL, WRITTEN

SHOWN = 4  # blocks, or names, listed


class Scene:
    """Two runs at their first difference, the record `at`. `rank` recorded it in the second run."""

    def __init__(self, frames: Frames, comparison: Comparison, at: Point):
        self.frames, self.comparison, self.at = frames, comparison, at
        runs = frames.runs.set_index(["run", "repeat"])
        self.a, self.b = runs.loc[comparison.a], runs.loc[comparison.b]
        self.rank, self.repeat = at.rank_b, comparison.b[1]
        self.table = "fingerprints" if at is comparison.fingerprint else "values"
        names = frames.recorded("fingerprints", *comparison.b)
        self.with_messages = any(name.startswith((SENT, TOTAL, WRITTEN, READ, *OF_WINDOWS)) for name in names)

    def sizes(self, at: Point | None = None) -> tuple[rounding.Size | None, rounding.Size | None]:
        """The sizes of the record `at`, by default the first difference, in both runs."""
        table = self.table if at is None or at is self.at else "fingerprints" if np.isnan(at.a) else "values"
        return sized.pair(self.frames, self.comparison.a, self.comparison.b, at or self.at, table)

    def farthest(self) -> tuple[rounding.Size | None, rounding.Size | None]:
        """The sizes in both runs of the block of this record that differs most."""
        if self.table == "values":
            return self.sizes()
        return sized.farthest(self.frames, self.comparison.a, self.comparison.b, self.at)

    @functools.cached_property
    def blocks(self) -> pd.DataFrame:
        """All records of this name and occurrence; columns block, rank (in the second run), differs."""
        sides = []
        for run, step in zip((self.comparison.a, self.comparison.b), self.at.steps, strict=True):
            rows = self.frames.segment(self.table, *run, self.at.name, step)
            sides.append(rows[rows["occurrence"] == self.at.occurrence])
        both = sides[0].merge(sides[1], on="block", suffixes=("_a", "_b"))
        if self.table == "values":
            differs = bits.differ(both["value_a"].to_numpy(), both["value_b"].to_numpy())
        else:
            differs = ((both["hi_a"] != both["hi_b"]) | (both["lo_a"] != both["lo_b"])).to_numpy()
        return pd.DataFrame({"block": both["block"], "rank": both["rank_b"], "differs": differs})

    def event(self, name: str, call: int | None = None) -> Event | None:
        """The event `name` of the same call as this record, or the `call`-th event `name` of its step."""
        call = self.at.occurrence if call is None else call
        return preceding.nth(self.b["path"], self.repeat, self.rank, self.at.steps[1], name, call)

    def region(self, reducer: str) -> str:
        """The region of a reduction, in the second run."""
        return json.loads(self.b["reductions"]).get(reducer, {}).get("region", reducer)

    def reducer(self, region: str) -> str:
        """The reduction of a region; the region itself if it has none."""
        stated = json.loads(self.b["reductions"])
        return next((name for name, own in stated.items() if own.get("region") == region), region)

    def regrouped(self, region: str) -> bool:
        """True if the number of ranks may change the bits of this planned reduction."""
        own = json.loads(self.b["reductions"]).get(self.reducer(region), {})
        return self.a["size"] != self.b["size"] and own.get("guarantee") in ("none", "run")

    def fixed(self, region: str) -> bool:
        """True if the guarantee of this reduction fixes the order of its contributions in both runs."""
        own = [json.loads(run["reductions"]).get(self.reducer(region), {}) for run in (self.a, self.b)]
        levels = {each.get("guarantee", "none") for each in own}
        return levels <= (
            {"layout", "exact"} if self.a["size"] != self.b["size"] else {"run", "layout", "exact"}
        )

    def sources(self, name: str) -> tuple[int, int] | None:
        """The ranks whose messages this receive from any source took in both runs; None if they are the same."""
        sides = []
        for run, step in zip((self.comparison.a, self.comparison.b), self.at.steps, strict=True):
            rows = self.frames.segment("values", *run, f"{SOURCE}{name}", step)
            rows = rows[(rows["occurrence"] == self.at.occurrence) & (rows["block"] == self.at.block)]
            sides.append([int(value) for value in rows["value"]])
        return (sides[0][0], sides[1][0]) if all(sides) and sides[0] != sides[1] else None

    def probed(self) -> tuple[str, int, int, int] | None:
        """(call, occurrence, source in the first run, source in the second) of this rank's last probe before it.

        None if there is no probe, or if it found a message of the same rank in both runs."""
        at, (a, b) = self.at, (self.comparison.a, self.comparison.b)
        here = self.frames.segment("fingerprints", *b, at.name, at.step)
        until = here["after"][(here["occurrence"] == at.occurrence) & (here["block"] == at.block)].min()
        found = []
        for name in self.frames.recorded("values", *b):
            if not name.startswith(SOURCE):
                continue
            one, other = (self.frames.segment("values", *run, name, at.step) for run in (a, b))
            both = other.merge(one, on=["occurrence", "block"], suffixes=("", "_a"))
            both = both[(both["block"] == at.block) & (both["after"] <= until)]
            for row in both.sort_values("after").tail(1).itertuples():
                found.append((row.after, name.removeprefix(SOURCE), row.occurrence, row.value_a, row.value))
        _, call, which, first, second = max(found, default=(0, "", 0, 0.0, 0.0))
        return (call, which, int(first), int(second)) if first != second else None

    def recorded_as_sent(self, name: str) -> bool:
        """True if the second run recorded the blocks before this exchange."""
        return f"{SENT}{name}" in self.frames.recorded("fingerprints", *self.comparison.b)

    def neighbours(self, name: str) -> list[list[int] | None]:
        """For both runs, the ranks from which `rank` receives in the neighbourhood collective `name`; None: unknown."""
        return [json.loads(run["neighbours"]).get(name, {}).get(str(self.rank)) for run in (self.a, self.b)]

    def advice(self, what: str) -> str:
        """A clause that names the option to record `what` with; another clause if the second run had that option."""
        options, config = (json.loads(self.b[key]) for key in ("options", "config"))
        if "program.sums" in options:
            more = "" if self.recorded("MPI_Send", "MPI_Isend") else "fpna run --point-to-point"
        elif "recording.of_ranks" in options:
            more = "" if config["recording"].get("reductions") else "fpna.record(..., reductions=True)"
        else:
            more = "" if config.get("run", {}).get("record") == "messages" else "--record messages"
        return f"record {what} to tell them apart ({more})" if more else "no record tells them apart"

    def recorded(self, *calls: str) -> bool:
        """True if the second run recorded a message of one of `calls`."""
        names = self.frames.recorded("fingerprints", *self.comparison.b)
        return any(name.startswith(tuple(f"{SENT}{call} at" for call in calls)) for name in names)

    def preceding(self) -> Preceding:
        """The events of the rank of this record before it, in the second run."""
        at = replace(self.at, step=self.at.steps[1])
        return preceding.preceding(self.b["path"], self.repeat, self.rank, at)

    def order(self, reducer: str, call: int, at_step: int | None = None) -> tuple[bool, bool] | None:
        """(whether the recorded orders of a sum differ, whether they can be compared); None: not recorded.

        The sum is of the step of this record, or of step `at_step`."""
        sides = []
        steps = self.at.steps if at_step is None else (at_step, at_step)
        for run, step in zip((self.comparison.a, self.comparison.b), steps, strict=True):
            rows = self.frames.of("order", *run)
            keep = (rows["step"] == step) & (rows["name"] == reducer) & (rows["occurrence"] == call)
            sides.append(rows["ranks"][keep].tolist())
        if not all(sides):
            return None
        (a, *_), (b, *_) = sides
        return a != b, len(a) == len(b)


def which_blocks(scene: Scene) -> str:
    """`block 5`, `blocks 1, 2 (2 of 64)`."""
    blocks = scene.blocks
    differing = blocks["block"][blocks["differs"]].tolist()
    if scene.at.block < 0:
        return scene.at.name
    if len(differing) == len(blocks) > 1:
        return f"all {len(blocks)} blocks"
    shown = ", ".join(map(str, differing[:SHOWN])) + (", ..." if len(differing) > SHOWN else "")
    noun = "block" if len(differing) == 1 else "blocks"
    return f"{noun} {shown} ({len(differing)} of {len(blocks)})"


def which_ranks(scene: Scene) -> str:
    """`rank 2`, `3 ranks`: the owners of differing blocks."""
    blocks = scene.blocks
    ranks = sorted(set(blocks["rank"][blocks["differs"]].tolist()))
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"{len(ranks)} ranks"


def event_names(events: Iterable[Event]) -> str:
    """The names of `events`, each once, at most SHOWN."""
    names = list(dict.fromkeys(event.name for event in events))
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
