"""Pictures of what ran on each rank around a first divergence."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.divergence.cause import cause
from analysis.divergence.points import Comparison
from analysis.load.frames import Frames
from analysis.load.stated import partners_of
from analysis.load.timeline import timeline
from analysis.overview import Overview
from analysis.page import svg
from analysis.page.sections import Section
from analysis.page.svg import Figure, figure_of
from analysis.runs import Id, label
from miniapps.trace import TraceError
from miniapps.trace.schema import COLLECTIVE

DRAWN = 3  # divergences with a picture: each reads traces again
RANKS = 8  # rows of one picture
BARS = 1000  # of one picture
NAMES = 6  # regions with a colour each; all others are grey
GREY = len(svg.SERIES) - 1
ROW_IN = 0.42
LABELLED = 0.09  # of the width, from which a bar bears its name
MARKED = "marked"


def timeline_sections(overview: Overview) -> list[Section]:
    """What ran around the first divergence of each cell, in both runs."""
    cells = [(cell.label, cell.first) for group in overview.groups for cell in group.cells if cell.first]
    title = "Timelines around the first divergence"
    if not cells:
        return [
            Section(
                "timelines",
                title,
                "No runs of one group and rank count differ, so there is no divergence to look at.",
            )
        ]
    figures = []
    for k, (cell, comparison) in enumerate(cells[:DRAWN]):
        figures += timeline_figure(overview.frames, comparison, f"timeline-{k}", cell)
    nothing = (
        "The runs that differ recorded no events around their first divergence (--trace off), or are gone."
    )
    intro = (
        "What every rank did in the step in which the difference arose, or is first seen: the first run above, the one "
        "that differs below; an asterisk marks the rank that owns the block. Regions inside others are drawn below "
        "them in the row of their rank."
    )
    if len(cells) > DRAWN:
        intro += f" Drawn for the first {DRAWN} of {len(cells)}."
    return [Section("timelines", title, nothing, intro if figures else "", figures)]


def timeline_figure(frames: Frames, comparison: Comparison, name: str, cell: str) -> list[Figure]:
    """The timeline of both runs of `comparison`, as a list of one figure; empty where no events are left to draw.

    The event in which the difference arose (`divergence.cause`) is framed in the second run, where the traces tell it.
    """
    at, judged = comparison.part, cause(frames, comparison)
    event = judged.event if judged else None
    step = event.step if event else at.step
    pieces = []
    for run, rank in ((comparison.a, at.rank_a), (comparison.b, at.rank_b)):
        bars = _bars_of(frames, run, rank, step)
        if bars is None or bars.empty:
            return []
        bars[MARKED] = False
        if event and run == comparison.b:
            bars[MARKED] = (bars["rank"] == event.rank) & (bars["index"] == event.index)
        pieces.append((label(run), bars))
    every = pd.concat([bars.assign(run=run) for run, bars in pieces], ignore_index=True)
    left_out = len(every)
    every = every[every[MARKED] | ((every["end_ms"] - every["start_ms"]) >= _shortest(every))]
    left_out -= len(every)
    own = (every["end_ms"] - every["start_ms"]).where(every["leaf"], 0.0)
    names = own.groupby(every["name"]).sum().sort_values(ascending=False).index[:NAMES].tolist()
    legend = [*enumerate(names), *([(GREY, "other regions")] if every["name"].nunique() > NAMES else [])]
    ranks = sorted(set(every["rank"]))
    caption = (
        f"Step {step} on {len(ranks)} ranks, from {label(comparison.a)} and {label(comparison.b)}; each on its own "
        "clock from the beginning of the step."
        + (
            f" Framed: the event in which the difference arose ({judged.kind}: {judged.name})."
            if judged and every[MARKED].any()
            else " The traces do not tell which event it was."
        )
        + (f" {left_out:,} events too short to be seen are left out." if left_out else "")
    )
    panels = [
        (run, every[every["run"] == run], rank)
        for (run, _), rank in zip(pieces, (at.rank_a, at.rank_b), strict=True)
    ]
    height = 1.4 + 2 * ROW_IN * len(ranks)
    data = every[["run", "rank", "step", "name", "depth", "start_ms", "end_ms", MARKED]]
    title = f"Around the first divergence: {cell}"
    return [figure_of(name, title, _panels(panels, names), caption, height, legend, (2, 1), data)]


def _bars_of(frames: Frames, run: Id, owner: int, step: int) -> pd.DataFrame | None:
    """Events of one step of some ranks, in ms from the first of them; None where the traces cannot be read."""
    path = frames.runs.loc[(frames.runs["run"] == run[0]) & (frames.runs["repeat"] == run[1]), "path"].iloc[0]
    try:
        events = timeline(path, run[1], [step], _chosen(frames, run, path, owner, step))
    except (TraceError, OSError):
        return None
    if events.empty:
        return events
    events = events.astype({"name": "str"})
    begin = events["start"].min()
    # Sorted by rank and start, outer regions first: what lies inside a region follows it.
    rank, depth = events["rank"].to_numpy(), events["depth"].to_numpy()
    leaf = np.append((rank[1:] != rank[:-1]) | (depth[1:] <= depth[:-1]), True)
    return events.assign(
        start_ms=(events["start"] - begin) / 1e6, end_ms=(events["end"] - begin) / 1e6, leaf=leaf
    )


def _chosen(frames: Frames, run: Id, path: str, owner: int, step: int) -> list[int]:
    """All ranks where they are few; else the owner, those it exchanges data with, and the slowest of the others."""
    rows = frames.runs[(frames.runs["run"] == run[0]) & (frames.runs["repeat"] == run[1])]
    size = int(rows["size"].iloc[0])
    if size <= RANKS:
        return list(range(size))
    near = [owner]
    for by_rank in partners_of(frames.stated(run[0])).values():
        near += by_rank.get(owner, [])
    events = frames.of("events", *run)
    kinds = json.loads(rows["regions"].iloc[0])
    collective = [name for name, kind in kinds.items() if kind == COLLECTIVE]
    events = events[(events["step"] == step) & ~events["name"].isin(collective)]
    slow = events.groupby("rank")["exclusive_ns"].sum().sort_values(ascending=False).index.tolist()
    near = list(dict.fromkeys(near))[: RANKS - 2]
    return sorted([*near, *[rank for rank in slow if rank not in near][: RANKS - len(near)]])


def _shortest(bars: pd.DataFrame) -> float:
    """The length below which bars are left out, so that BARS are left."""
    lengths = np.sort((bars["end_ms"] - bars["start_ms"]).to_numpy())
    return float(lengths[-BARS]) if len(lengths) > BARS else 0.0


def _panels(panels: list[tuple[str, pd.DataFrame, int]], names: list[str]) -> Callable:
    def plot(grid) -> None:
        right = max(bars["end_ms"].max() for _, bars, _ in panels)
        for axes, (run, bars, owner) in zip(np.ravel(grid), panels, strict=True):
            _rows(axes, bars, owner, names, right)
            axes.set_title(run, fontsize=9, loc="left")
        axes.set_xlabel("ms from the beginning of the step")

    return plot


def _rows(axes, bars: pd.DataFrame, owner: int, names: list[str], right: float) -> None:
    ranks = sorted(set(bars["rank"]))
    deepest = int(bars["depth"].max()) + 1
    high = 0.84 / deepest
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    colours = bars["name"].map(lambda name: names.index(name) if name in names else GREY)
    for (rank, depth, colour), same in bars.groupby(["rank", "depth", colours], sort=True):
        y = ranks.index(rank) - 0.42 + depth * high
        start, length = same["start_ms"].to_numpy(), (same["end_ms"] - same["start_ms"]).to_numpy()
        left, right_ = start, start + length
        corners = [(left, y), (right_, y), (right_, y + high), (left, y + high), (left, y)]
        points = np.stack([np.stack(np.broadcast_arrays(*corner), axis=-1) for corner in corners], axis=1)
        codes = np.tile([Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY], len(same))
        look = {"facecolor": svg.SERIES[colour], "alpha": 0.75, "linewidth": 0}
        axes.add_patch(
            PathPatch(Path(points.reshape(-1, 2), codes), **look)
        )  # one shape: a tenth of the page's size
        for x, wide, name in zip(start, length, same["name"], strict=True):
            if wide > LABELLED * right and len(name) * 0.017 * right < wide:
                axes.text(x + 0.006 * right, y + high / 2, name, fontsize=8, va="center", clip_on=True)
    if bars[MARKED].any():
        framed = bars[bars[MARKED]]
        y = ranks.index(framed["rank"].iloc[0]) - 0.46
        begin, end = framed["start_ms"].min(), framed["end_ms"].max()
        xs, ys = [begin, end, end, begin, begin], [y, y, y + 0.92, y + 0.92, y]
        axes.plot(xs, ys, color=svg.INK, linewidth=1.6, clip_on=False)
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" + (" *" if rank == owner else "") for rank in ranks])
    axes.set_ylim(len(ranks) - 0.45, -0.55)
    axes.set_xlim(0, right)
    axes.grid(axis="y", visible=False)
