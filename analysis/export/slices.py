"""What every format exports: the events of one run that were asked for, nested, matched over ranks, and described."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.export.tables import distinct
from analysis.load.guard import read_run
from analysis.load.timeline import WITH_PARTNERS, Seen, timeline
from analysis.page.text import spans
from miniapps.trace.head import orderings
from miniapps.trace.schema import COLLECTIVE
from miniapps.untrusted.text import printable

MOST_EVENTS = 12_000_000  # of one export: all are in memory, since collectives are matched over ranks


class NothingToExport(Exception):
    """The run holds no such events; the message says which it holds."""


@dataclass(frozen=True)
class Selection:
    """Which events: of one `repeat`, of `ranks` and `steps` (ranges, ends included), and of the time from `begin` to
    `end`, ns after the first event of the run; None: all."""

    repeat: int | None = None
    ranks: Sequence[range] | None = None
    steps: Sequence[range] | None = None
    begin: int | None = None
    end: int | None = None


@dataclass(frozen=True)
class Slice:
    """A part of the run in `path`: what happened from `begin` to `end`, ns after its first event. Names are such as
    every format can hold: `printable` but for line feeds and tabs.

    `attributes` of the traces of the ranks that take part, by rank. `events` has the columns of `timeline` and

    - `cut`: the region began before the slice or ended after it, and was cut at its border;
    - `call`: which event of this name it is on its rank in this repeat and step, from 0;
    - `collective`: the same number on all ranks for the same collective, from 0 in the order of the first rank; -1 for
      other regions, and for collectives that some rank of the slice has not recorded whole;
    - `lane`: 0; regions that overlap those of lane 0 without being inside them are in further lanes, and `depth` counts
      the regions of the same lane around each, so that regions of one (rank, lane) nest.
    """

    path: Path
    attributes: dict[int, dict[str, Any]]
    events: pd.DataFrame
    begin: int
    end: int

    @property
    def complete(self) -> bool:
        """Whether all its ranks came to a regular end."""
        return all(attributes["complete"] for attributes in self.attributes.values())

    @property
    def title(self) -> str:
        """`coupled none/arrival`."""
        first = next(iter(self.attributes.values()))
        ordering = ",".join(orderings(first.get("reductions", {})))
        method = "/".join(filter(None, (first.get("guarantee"), ordering)))
        return printable(f"{first.get('app', self.path.name)} {method}".rstrip())

    @property
    def name(self) -> str:
        """The name of the run's directory."""
        return printable(self.path.name)

    def node(self, rank: int) -> str:
        """The node on which `rank` ran."""
        return printable(str(self.attributes[rank].get("environment", {}).get("node") or "unknown node"))

    @cached_property
    def waits(self) -> dict[str, str]:
        """What each region waits for, by name: `collective`, `exchange`, or `local` for nobody."""
        kinds = self.events.drop_duplicates("name").set_index("name")["kind"].astype("str")
        shown = {COLLECTIVE: "collective", **dict.fromkeys(WITH_PARTNERS, "exchange")}
        return {str(name): shown.get(kind, "local") for name, kind in kinds.items()}

    def pieces(self) -> Iterable[tuple[int, int, pd.DataFrame]]:
        """(rank, lane, its events) for every lane of every rank."""
        for (rank, lane), own in self.events.groupby(["rank", "lane"], sort=True):
            yield int(rank), int(lane), own


def slice_of(run: Path, selection: Selection = Selection()) -> Slice:
    """The events of the directory `run` that `selection` names.

    Raises NothingToExport where there are none, or where a rank, step or repeat does not exist, and TraceError where a
    rank is missing or cannot be read.
    """
    heads = {trace.attributes["rank"]: trace.attributes for trace in read_run(run, tables=())}
    ranks = _chosen("rank", selection.ranks, list(heads), run)
    repeat = None if selection.repeat is None else [range(selection.repeat, selection.repeat + 1)]
    asked = {"rank": selection.ranks, "step": selection.steps, "repeat": repeat}
    total = 0

    def kept(columns: dict[str, np.ndarray]) -> np.ndarray:
        nonlocal total
        keep = np.ones(len(columns["start"]), bool)
        for key, parts in asked.items():
            if parts is not None:
                own = columns[key]
                keep &= np.any([(own >= part.start) & (own < part.stop) for part in parts], axis=0)
        total += int(keep.sum())
        if total > MOST_EVENTS:
            raise NothingToExport(
                f"{run}: more than {MOST_EVENTS:,} events, which would take more than 4 GB of memory; choose some with "
                "--steps, --ranks or --repeat"
            )
        return keep

    # All ranks are read, whichever are wanted, since times count from the first event of the run.
    seen = Seen()
    events = timeline(run, kept=kept, seen=seen)
    if not seen.events or seen.begin is None or seen.end is None:
        raise NothingToExport(f"{run}: no events, as with --trace off; repeat the run with --trace regions")
    steps = _chosen("step", selection.steps, sorted(seen.steps), run)
    _chosen("repeat", repeat, sorted(seen.repeats), run)
    longest = seen.end - seen.begin
    by = ["rank", "repeat", "step", "name"]
    events = _between(events.assign(call=events.groupby(by, observed=True).cumcount()), selection)
    if events.empty:
        raise NothingToExport(
            f"{run}: none of its events is in all that was asked for; it has ranks {spans(list(heads))}, steps "
            f"{spans(steps)} and {longest / 1e9:.6f} s"
        )
    events = events.reset_index(drop=True)
    events["name"] = events["name"].cat.remove_unused_categories()
    lane, depth = _nested(events)
    events = events.assign(lane=lane, depth=depth)
    events["collective"] = _matched(events, len(ranks))
    names = distinct(printable(name, keep="\n\t") for name in events["name"].cat.categories)
    events["name"] = events["name"].cat.rename_categories(names)
    attributes = {rank: heads[rank] for rank in ranks}
    return Slice(Path(run), attributes, events, int(events["start"].min()), int(events["end"].max()))


def parents(depth: np.ndarray) -> np.ndarray:
    """Where the interval around each of one (rank, lane) is: the last one before it that is one level further out; -1
    where there is none. `depth` (n,) is as in `Slice.events`."""
    n = len(depth)
    keys = depth.astype(np.int64) * n + np.arange(n)
    by_depth = np.sort(keys)
    around = by_depth[np.searchsorted(by_depth, keys - n) - 1] % max(n, 1)
    return np.where(depth > 0, around, -1)


def _chosen(what: str, asked: Sequence[range] | None, known: list[int], run: Path) -> list[int]:
    if asked is None:
        return known
    there = set(known)
    for part in asked:
        # One number that is missing suffices; a range may be far longer than the run.
        missing = next((number for number in part if number not in there), None)
        if missing is not None:
            raise NothingToExport(f"{run}: no {what} {missing}; it has {what}s {spans(known)}")
    return [number for number in known if any(number in part for part in asked)]


def _between(events: pd.DataFrame, selection: Selection) -> pd.DataFrame:
    """The events that overlap the time asked for, cut at its borders."""
    start, end = events["start"], events["end"]
    begin = start.min() if selection.begin is None else selection.begin
    stop = end.max() + 1 if selection.end is None else selection.end
    # A region without length is inside where its instant is; all others where they share some time with the slice.
    inside = ((end > begin) | ((start == end) & (start == begin))) & (start < stop)
    cut = (start < begin) | (end > stop)
    return events.assign(start=start.clip(lower=begin), end=end.clip(upper=stop), cut=cut)[inside]


def _matched(events: pd.DataFrame, ranks: int) -> np.ndarray:
    collective = np.full(len(events), -1)
    waits = (events["kind"] == COLLECTIVE).to_numpy()
    rows = np.flatnonzero(waits & ~events["cut"].to_numpy())
    calls = events.iloc[rows].groupby(["repeat", "step", "name", "call"], observed=True, sort=False)
    whole = calls["rank"].transform("size").to_numpy() == ranks
    collective[rows[whole]] = pd.factorize(calls.ngroup().to_numpy()[whole])[0]
    return collective


def _nested(events: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """(lane, depth) of each event, int32."""
    lane, depth = np.zeros(len(events), np.int32), np.zeros(len(events), np.int32)
    start, end, rank = (events[column].to_numpy() for column in ("start", "end", "rank"))
    begins = np.flatnonzero(np.append(True, rank[1:] != rank[:-1]))
    for i, j in zip(begins, [*begins[1:], len(events)], strict=True):
        depth[i:j] = _open_around(start[i:j], end[i:j])
        around = parents(depth[i:j])
        # An interval without one around it is inside itself.
        if (end[i:j] > end[i:j][np.where(around < 0, np.arange(j - i), around)]).any():
            lane[i:j], depth[i:j] = _dealt(start[i:j].tolist(), end[i:j].tolist())
    return lane, depth


def _open_around(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many intervals that began before each, or with it and are longer, have not ended when it begins."""
    long = end > start
    return np.cumsum(long) - long - np.searchsorted(np.sort(end[long]), start, side="right")


def _dealt(start: list[int], end: list[int]) -> tuple[list[int], list[int]]:
    """The first lane in which each interval is inside of or apart from those before it, and its depth there."""
    lanes: list[list[int]] = []  # of each, the ends of the intervals that are open, the outermost first
    where, depth = [], []
    for begin, stop in zip(start, end, strict=True):
        for open_ends in lanes:
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
        lane = next((i for i, ends in enumerate(lanes) if not ends or ends[-1] >= stop), len(lanes))
        if lane == len(lanes):
            lanes.append([])
        where.append(lane)
        depth.append(len(lanes[lane]))
        lanes[lane].append(stop)
    return where, depth
