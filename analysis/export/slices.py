"""Selects the events of one run for export, in any format; nests them and matches them over ranks.

Traces are read twice, a rank at a time: first for facts about all ranks together (`slice_of`), then for the events
(`Slice.ranks`), which are written at once. Only one rank, and a row per collective, are in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.export.matched import Collectives
from analysis.export.tables import distinct
from analysis.load.guard import read_run
from analysis.load.rankfile import count_before
from analysis.load.timeline import TIMELINE, WITH_PARTNERS, of_rank, span
from analysis.load.watch import SILENT, Watch
from analysis.page.text import spans
from miniapps.trace import RankTrace, TraceError
from miniapps.trace.head import orderings
from miniapps.trace.schema import COLLECTIVE, KINDS
from miniapps.untrusted.text import printable


class NothingToExport(Exception):
    """The run has no such events; the message lists the events that it has."""


@dataclass(frozen=True)
class Selection:
    """The selected events: of one `repeat`, of `ranks` and `steps`, and of the time from `begin` to `end`.

    Times are ns after the first event of the run. None selects all."""

    repeat: int | None = None
    ranks: Sequence[range] | None = None
    steps: Sequence[range] | None = None
    begin: int | None = None
    end: int | None = None

    def of(self, trace: RankTrace, codes: dict[str, int]) -> dict[str, np.ndarray]:
        """The events of one rank in the selected repeat and steps: the columns of `of_rank`, and `call`.

        `call` numbers the events of a name in a repeat and step from 0."""
        columns = of_rank(trace, codes)
        keep = np.ones(len(columns["start"]), bool)
        if self.repeat is not None:
            keep &= columns["repeat"] == self.repeat
        if self.steps is not None:
            own = columns["step"]
            keep &= np.any([(own >= part.start) & (own < part.stop) for part in self.steps], axis=0)
        if not keep.all():
            columns = {key: column[keep] for key, column in columns.items()}
        return columns | {"call": count_before(*(columns[key] for key in ("repeat", "step", "name")))}


@dataclass
class Written:
    """Counts of the exported events of a slice so far: all `events`, events that were `cut`, and their `steps`."""

    events: int = 0
    cut: int = 0
    steps: set[int] = field(default_factory=set)


@dataclass
class Slice:
    """The events of the run in `path` from `begin` to `end`, ns after its first event.

    Names are `printable` except for line feeds and tabs, so that every format can hold them.

    attributes    of the traces of the selected ranks, by rank
    origin        the time of the first event on the clock of rank 0
    counts        {rank: number of its events}, before events are left out for their time
    kinds         {region: kind}
    codes         {region: code}, as `of_rank` assigns them
    places        for each code the index of the region in `kinds`, -1 if it is not selected
    collectives   the collectives in which all selected ranks take part
    holds         the ranks, steps and seconds of the run, in words
    written       counts of the events that `ranks` yielded
    """

    path: Path
    attributes: dict[int, dict[str, Any]]
    selection: Selection
    origin: int
    begin: int
    end: int
    counts: Counter[int]
    kinds: dict[str, str]
    codes: dict[str, int]
    places: np.ndarray
    collectives: Collectives
    holds: str
    watch: Watch = SILENT
    written: Written = field(default_factory=Written)

    @property
    def complete(self) -> bool:
        """True if all its ranks ended regularly."""
        return all(attributes["complete"] for attributes in self.attributes.values())

    @property
    def title(self) -> str:
        """The application and its method, such as `coupled none/arrival`."""
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
        """The kind of wait of each region, by name: `collective`, `exchange`, or `local` for none."""
        shown = {COLLECTIVE: "collective", **dict.fromkeys(WITH_PARTNERS, "exchange")}
        return {name: shown.get(kind, "local") for name, kind in self.kinds.items()}

    def ranks(self, doing: str = "written") -> Iterator[tuple[int, pd.DataFrame]]:
        """Yields (rank, its events) for every rank; one rank is in memory at a time.

        Rows have the index 0, 1, ... Besides the columns of `timeline` they have

        - `cut`: True if the region began before the slice or ended after it, and was cut at its border;
        - `call`: the number of the event among those of its name in this repeat and step, from 0;
        - `collective`: the number of the collective, the same on all ranks, from 0 in the order of the first rank; -1
          for other regions, and for collectives that some rank of the slice has not recorded whole;
        - `lane`: 0; regions that overlap regions of lane 0 without nesting are in further lanes. `depth` counts the
          regions around each in its lane, so that regions of one (rank, lane) nest.

        `doing` is a word for the progress, such as `written`. Raises TraceError if a trace changed after the slice was
        made, and NothingToExport if no event is in the selected time.
        """
        self.written, done, total = Written(), 0, self.counts.total()
        for trace in read_run(self.path, ["events"], self.attributes):
            self.watch.step(done, total, f"{done:,} of {total:,} events {doing}")
            rank, known = trace.attributes["rank"], len(self.codes)
            columns = self.selection.of(trace, self.codes)
            if len(columns["start"]) != self.counts[rank] or len(self.codes) != known:
                reason = f"the trace of rank {rank} changed while it was exported; export the run when it has ended"
                raise TraceError(f"{printable(str(self.path))}: {reason}")
            done += len(columns["start"])
            own = self._frame(columns)
            self.written.events += len(own)
            self.written.cut += int(own["cut"].sum())
            self.written.steps.update(own["step"].unique().tolist())
            yield rank, own
        self.watch.clear()
        if not self.written.events:
            raise NothingToExport(
                f"{self.path}: none of its events is in all that was asked for; it has {self.holds}"
            )

    def pieces(self) -> Iterator[tuple[int, int, pd.DataFrame]]:
        """Yields (rank, lane, its events) for every lane of every rank."""
        for rank, own in self.ranks():
            for lane, part in own.groupby("lane", sort=True):
                yield rank, int(lane), part

    def _frame(self, columns: dict[str, np.ndarray]) -> pd.DataFrame:
        """The columns of `ranks` for the events of one rank in the selected time."""
        begin, stop = self.selection.begin, self.selection.end
        start, end = columns["start"] - self.origin, columns["end"] - self.origin
        begin = int(start.min(initial=0)) if begin is None else begin
        stop = int(end.max(initial=0)) + 1 if stop is None else stop
        # A region is inside if it shares some time with the slice; a region without length if its instant is inside.
        inside = ((end > begin) | ((start == end) & (start == begin))) & (start < stop)
        cut = (start < begin) | (end > stop)
        columns = columns | {"start": start.clip(min=begin), "end": end.clip(max=stop), "cut": cut}
        columns = {key: column[inside] for key, column in columns.items()}
        own = pd.DataFrame({key: columns[key] for key in (*TIMELINE, "call", "cut")}, copy=False)
        waits = np.flatnonzero((columns["kind"] == KINDS.index(COLLECTIVE)) & ~columns["cut"])
        collective = np.full(len(own), -1)
        collective[waits] = self.collectives.of(own.iloc[waits])
        own["lane"], own["depth"] = _nested(columns["start"], columns["end"])
        own["collective"] = collective
        own["name"] = pd.Categorical.from_codes(self.places[columns["name"]], list(self.kinds))
        own["kind"] = pd.Categorical.from_codes(columns["kind"], KINDS)
        return own


def slice_of(run: Path, selection: Selection = Selection(), watch: Watch = SILENT) -> Slice:
    """The slice of the run in the directory `run` that `selection` describes; `watch` shows the progress.

    Raises NothingToExport if it has no events, or if a rank, step or repeat does not exist, and TraceError if a rank is
    missing or cannot be read.
    """
    steps, repeats, spanned, own = set[int](), set[int](), [], []
    attributes: dict[int, dict[str, Any]] = {}
    counts, codes, kinds = Counter[int](), dict[str, int](), dict[int, str]()
    # All ranks are read, even if few are selected, since times count from the first event of the run.
    for trace in read_run(run, ["events"]):
        rank, size = trace.attributes["rank"], trace.attributes["size"]
        if not rank:
            ranks = _existing("rank", selection.ranks, range(size), run)
            collectives = Collectives(len(ranks))
        watch.step(rank, size, f"events of rank {rank} of {size} looked at")
        steps.update(np.unique(trace.tables["events"]["step"]).tolist())
        repeats.update(np.unique(trace.tables["events"]["repeat"]).tolist())
        spanned += span(trace)
        for name in trace.names:
            codes.setdefault(name, len(codes))
        if rank not in ranks:
            continue
        attributes[rank] = trace.attributes
        columns = selection.of(trace, codes)
        counts[rank] = len(columns["start"])
        if counts[rank]:
            own += [int(columns["start"][0]), int(columns["end"].max())]
        used, first = np.unique(columns["name"], return_index=True)
        for code, kind in zip(used.tolist(), columns["kind"][first].tolist(), strict=True):
            kinds.setdefault(code, KINDS[kind])
        waits = columns["kind"] == KINDS.index(COLLECTIVE)
        collectives.add(rank, pd.DataFrame({key: column[waits] for key, column in columns.items()}))
    watch.clear()
    if not spanned:
        raise NothingToExport(f"{run}: no events, as with --trace off; repeat the run with --trace regions")
    _existing("step", selection.steps, steps, run)
    if selection.repeat is not None:
        _existing("repeat", [range(selection.repeat, selection.repeat + 1)], repeats, run)
    origin, longest = min(spanned), max(spanned) - min(spanned)
    begin, end = (min(own) - origin, max(own) - origin) if own else (0, 0)
    begin = begin if selection.begin is None else max(begin, selection.begin)
    end = end if selection.end is None else min(end, selection.end)
    holds = f"ranks {spans(range(size))}, steps {spans(steps)} and {longest / 1e9:.6f} s"
    if begin > end or not own:
        raise NothingToExport(f"{run}: none of its events is in all that was asked for; it has {holds}")
    collectives.settle(
        origin + (begin if selection.begin is None else selection.begin),
        origin + (end + 1 if selection.end is None else selection.end),
    )
    text = list(codes)
    order = sorted(kinds)
    places = np.full(len(codes), -1, np.int32)
    places[order] = np.arange(len(order))
    names = distinct(printable(text[code], keep="\n\t") for code in order)
    named = {name: kinds[code] for name, code in zip(names, order, strict=True)}
    return Slice(
        Path(run), attributes, selection, origin, begin, end, counts, named, codes, places, collectives, holds, watch,
    )  # fmt: skip


def parents(depth: np.ndarray) -> np.ndarray:
    """The index of the interval around each interval of one (rank, lane); -1 if there is none: (n,).

    It is the last earlier interval that is one level further out. `depth` (n,) is the column of `Slice.ranks`."""
    n = len(depth)
    keys = depth.astype(np.int64) * n + np.arange(n)
    by_depth = np.sort(keys)
    around = by_depth[np.searchsorted(by_depth, keys - n) - 1] % max(n, 1)
    return np.where(depth > 0, around, -1)


def _existing(what: str, asked: Sequence[range] | None, known: Collection[int], run: Path) -> set[int]:
    """The items of `known` in the ranges `asked` (None: all). Raises NothingToExport if a requested item is missing."""
    if asked is None:
        return set(known)
    there = set(known)
    for part in asked:
        # Stops at the first missing number, since a range may be far longer than the run.
        missing = next((number for number in part if number not in there), None)
        if missing is not None:
            raise NothingToExport(f"{run}: no {what} {missing}; it has {what}s {spans(known)}")
    return {number for number in known if any(number in part for part in asked)}


def _nested(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lane, depth) of each event of one rank, int32."""
    depth = _open_around(start, end).astype(np.int32)
    around = parents(depth)
    # An interval at depth 0 is compared with itself.
    if (end > end[np.where(around < 0, np.arange(len(end)), around)]).any():
        lane, inside = _into_lanes(start.tolist(), end.tolist())
        return np.array(lane, np.int32), np.array(inside, np.int32)
    return np.zeros(len(start), np.int32), depth


def _open_around(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """For each interval the number of earlier ones in the sorted order that are still open when it begins."""
    long = end > start
    return np.cumsum(long) - long - np.searchsorted(np.sort(end[long]), start, side="right")


def _into_lanes(start: list[int], end: list[int]) -> tuple[list[int], list[int]]:
    """(lane, depth) of each interval: the first lane in which it nests with all earlier intervals."""
    lanes: list[list[int]] = []  # for each lane the ends of its open intervals, the outermost first
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
