"""The scaling of runs: speedups and fits of all runs, and results from the traces of median runs."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from analysis.groups import grouped
from analysis.load.frames import SILENT, Frames
from analysis.load.stated import partners_of
from analysis.load.timeline import timeline
from analysis.load.watch import Watch
from analysis.runs import label
from analysis.studies.contract import Column, frame
from analysis.studies.scaling.fit import fits
from analysis.studies.scaling.series import scaled, series, speedups
from analysis.verdict import counted
from analysis.waiting.communication import COLLECTIVES, STRAGGLERS, collectives, stragglers
from analysis.waiting.efficiency import AGAINST_BASE, EFFICIENCY, against_base, efficiencies
from analysis.waiting.links import LINKS, links, slow_links
from analysis.waiting.path import RANKS, REGIONS, composition, critical_path, path_ranks, path_regions
from analysis.waiting.waits import Unmatched, waits
from miniapps.trace import TraceError

MOST_EVENTS = 25_000_000  # most events of a replayed run, over all its repeats: they take 4 GB
OPENED = 2000  # events whose reading takes as long as opening the trace of a rank
KEYS = {
    "series": Column("str"), "kind": Column("str", "`strong` or `weak`"), "size": Column("int64", "ranks"),
    "run": Column("str"), "repeat": Column("int64"),
}  # fmt: skip
EFFICIENCIES = EFFICIENCY | AGAINST_BASE
TRACED = {"efficiencies": EFFICIENCIES, "collectives": COLLECTIVES, "stragglers": STRAGGLERS, "links": LINKS,
          "path_regions": REGIONS, "path_ranks": RANKS}  # fmt: skip


@dataclass(frozen=True)
class Known:
    """`points` from `series`, `speedups` and `fits` from the functions of these names, for series with several rank
    counts; `traced` {name in TRACED: frame with KEYS before its own columns}: one run of each series and rank count;
    `labels`: the groups in the order of their colours; `notes`: sentences on the limits of these results."""

    points: pd.DataFrame
    speedups: pd.DataFrame
    fits: pd.DataFrame
    traced: dict[str, pd.DataFrame]
    labels: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def known_of(
    frames: Frames, events: int = MOST_EVENTS, in_all: int | None = None, watch: Watch = SILENT
) -> Known:
    """The scaling of `frames`. It reads the trace of the median run of every series and rank count if the run has at
    most `events` events (in all its repeats). It stops at `in_all` events, with OPENED more for each rank."""
    runs = grouped(frames.runs)
    points, notes = series(runs, frames.excluded)
    several = scaled(points)
    chosen = median_runs(points)
    traced, more = _traced(frames, chosen, events, in_all, watch)
    labels = list(dict.fromkeys(runs["group"]))
    return Known(points, speedups(several), fits(several), traced, labels, [*notes, *more])


def median_runs(points: pd.DataFrame) -> pd.DataFrame:
    """The run with the lower median of the wall time, for every series and rank count."""
    ordered = points.sort_values(["wall_s", "run", "repeat"], kind="stable")
    groups = ordered.groupby(["series", "size"], sort=False)
    place, count = groups.cumcount(), groups["run"].transform("size")
    middle = ordered[place == (count - 1) // 2]
    return middle.sort_index(kind="stable").drop_duplicates(["series", "size"]).reset_index(drop=True)


def _traced(frames: Frames, chosen: pd.DataFrame, events: int, in_all: int | None, watch: Watch):
    read = 0
    notes: list[str] = []
    known: dict[tuple[str, int], dict[str, pd.DataFrame] | None] = {}
    pieces: dict[str, list[pd.DataFrame]] = {name: [] for name in TRACED}
    large, late = 0, 0
    for row in chosen.itertuples(index=False):
        run = (row.run, row.repeat)
        if run not in known:
            if row.events > events:
                large += 1
                known[run] = None
            elif in_all is not None and read + row.events + OPENED * row.size > in_all:
                late += 1
                known[run] = None
            else:
                read += row.events + OPENED * row.size
                known[run] = _of_run(frames, row, notes, watch)
        of_run = known[run]
        if of_run is None:
            continue
        for name, table in of_run.items():
            keys = {key: getattr(row, key) for key in KEYS}
            pieces[name].append(table.assign(**keys)[[*KEYS, *table.columns]])
    if large:
        notes.append(
            f"the traces of {counted(large, 'run')} with more than {events:,} events were not replayed"
        )
    if late:
        advice = "`python -m analysis scaling` does"
        notes.append(
            f"the traces of {counted(late, 'run')} were not replayed, to keep the report quick; {advice}"
        )
    tables = {name: pd.concat(own, ignore_index=True) for name, own in pieces.items() if own}
    if "efficiencies" in tables:
        ordered = tables["efficiencies"].sort_values(["series", "size"], kind="stable", ignore_index=True)
        tables["efficiencies"] = against_base(ordered)
    return {name: frame(tables.get(name, []), KEYS | columns) for name, columns in TRACED.items()}, notes


def _of_run(frames: Frames, row, notes: list[str], watch: Watch) -> dict[str, pd.DataFrame] | None:
    run = label((row.run, row.repeat))
    if row.apart and row.size > 1:
        notes.append(
            f"{run}: each rank has whole arrays (method.split), so its ranks never wait for each other"
        )
        return None
    try:
        stated = frames.stated(row.run)
        # The timeline has no name here, so that `waits` can free its columns.
        waiting = waits(
            timeline(row.path, row.repeat, watch=watch).drop(columns="flops"),
            int(row.size),
            partners_of(stated),
        )
        watch.clear()
    except (TraceError, Unmatched) as error:
        notes.append(f"the trace of {run} was not replayed: {error}")
        return None
    path = critical_path(waiting)
    parts = composition(waiting, path)
    known = efficiencies(waiting)
    if known["acausal"]:
        notes.append(
            f"in {run}, {known['acausal']:,} of {known['waits']:,} waits ended before a partner began, by its clock "
            f"(up to {known['acausal_ns'] / 1000:,.0f} microseconds): the clocks of its nodes do not agree better, or "
            "not every exchange is with all partners of its region"
        )
    between_nodes = links(waiting, [str(own["node"]) for own in stated])
    notes += [f"in {run}, {sentence}" for sentence in slow_links(between_nodes)]
    return {
        "efficiencies": pd.DataFrame([known]),
        "collectives": collectives(waiting),
        "stragglers": stragglers(waiting),
        "links": between_nodes,
        "path_regions": path_regions(waiting, parts),
        "path_ranks": path_ranks(waiting, parts),
    }
