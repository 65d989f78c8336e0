"""The events of one run that a user selects for export, nested and matched over ranks, for every format.

Traces are read twice, a rank at a time: first for what is known of all ranks together (`slice_of`), then for the events
themselves (`Slice.ranks`), which go straight to the file. In memory are one rank, and a row per collective.
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

    def of(self, trace: RankTrace, codes: dict[str, int]) -> dict[str, np.ndarray]:
        """The events of one rank, as `of_rank` gives them, of the repeat and the steps; `call`: which event of its name
        each is in its repeat and step, from 0."""
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
    """Exported so far of a slice: how many `events`, how many of them were `cut`, and their `steps`."""

    events: int = 0
    cut: int = 0
    steps: set[int] = field(default_factory=set)


@dataclass
class Slice:
    """A part of the run in `path`: what happened from `begin` to `end`, ns after its first event, which was at `origin`
    on the clock of rank 0. Names are such as every format can hold: `printable` but for line feeds and tabs.

    `attributes` of the traces of the ranks that take part, by rank; `counts`: their events, before any is left out for
    its time; `kinds` of the regions by name; `codes`: what `of_rank` calls the regions, and `places`, which of `kinds`
    such a number is; `collectives`: those in which all ranks take part; `holds`: what the run does, in words.
    `written` counts what `ranks` gave.
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
        """The kind of wait of each region, by name: `collective`, `exchange`, or `local` for none."""
        shown = {COLLECTIVE: "collective", **dict.fromkeys(WITH_PARTNERS, "exchange")}
        return {name: shown.get(kind, "local") for name, kind in self.kinds.items()}

    def ranks(self, doing: str = "written") -> Iterator[tuple[int, pd.DataFrame]]:
        """(rank, its events) for every rank; one is in memory at a time. Its rows count from 0; beside the columns of
        `timeline` they have

        - `cut`: the region began before the slice or ended after it, and was cut at its border;
        - `call`: which event of this name it is on its rank in this repeat and step, from 0;
        - `collective`: the same number on all ranks for the same collective, from 0 in the order of the first rank; -1
          for other regions, and for collectives that some rank of the slice has not recorded whole;
        - `lane`: 0; regions that overlap those of lane 0 without being inside them are in further lanes, and `depth`
          counts the regions of the same lane around each, so that regions of one (rank, lane) nest.

        `doing` says what becomes of them, for the progress. Raises TraceError where a trace is no longer as it was when
        the slice was made, and NothingToExport where no event is in the time that was asked for.
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
        """(rank, lane, its events) for every lane of every rank."""
        for rank, own in self.ranks():
            for lane, part in own.groupby("lane", sort=True):
                yield rank, int(lane), part

    def _frame(self, columns: dict[str, np.ndarray]) -> pd.DataFrame:
        """The columns of `ranks` for the events of one rank, those of another time left out."""
        begin, stop = self.selection.begin, self.selection.end
        start, end = columns["start"] - self.origin, columns["end"] - self.origin
        begin = int(start.min(initial=0)) if begin is None else begin
        stop = int(end.max(initial=0)) + 1 if stop is None else stop
        # A region without length is inside where its instant is; all others where they share some time with the slice.
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
    """The events of the directory `run` that `selection` names; `watch` tells how far reading them is.

    Raises NothingToExport where there are none, or where a rank, step or repeat does not exist, and TraceError where a
    rank is missing or cannot be read.
    """
    steps, repeats, spanned, own = set[int](), set[int](), [], []
    attributes: dict[int, dict[str, Any]] = {}
    counts, codes, kinds = Counter[int](), dict[str, int](), dict[int, str]()
    # All ranks are read, whichever are wanted, since times count from the first event of the run.
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
    """Where the interval around each of one (rank, lane) is: the last one before it that is one level further out; -1
    where there is none. `depth` (n,) is as `Slice.ranks` gives it."""
    n = len(depth)
    keys = depth.astype(np.int64) * n + np.arange(n)
    by_depth = np.sort(keys)
    around = by_depth[np.searchsorted(by_depth, keys - n) - 1] % max(n, 1)
    return np.where(depth > 0, around, -1)


def _existing(what: str, asked: Sequence[range] | None, known: Collection[int], run: Path) -> set[int]:
    """The requested items of `known`. Raises NothingToExport where a requested item is missing."""
    if asked is None:
        return set(known)
    there = set(known)
    for part in asked:
        # One number that is missing suffices; a range may be far longer than the run.
        missing = next((number for number in part if number not in there), None)
        if missing is not None:
            raise NothingToExport(f"{run}: no {what} {missing}; it has {what}s {spans(known)}")
    return {number for number in known if any(number in part for part in asked)}


def _nested(start: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(lane, depth) of each event of one rank, int32."""
    depth = _open_around(start, end).astype(np.int32)
    around = parents(depth)
    # An interval without one around it is inside itself.
    if (end > end[np.where(around < 0, np.arange(len(end)), around)]).any():
        lane, inside = _into_lanes(start.tolist(), end.tolist())
        return np.array(lane, np.int32), np.array(inside, np.int32)
    return np.zeros(len(start), np.int32), depth


def _open_around(start: np.ndarray, end: np.ndarray) -> np.ndarray:
    """How many intervals that began before each, or with it and are longer, have not ended when it begins."""
    long = end > start
    return np.cumsum(long) - long - np.searchsorted(np.sort(end[long]), start, side="right")


def _into_lanes(start: list[int], end: list[int]) -> tuple[list[int], list[int]]:
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
