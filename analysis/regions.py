"""Computes time by region: wall time, its spread over ranks, and the cost of a guarantee."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from analysis.groups import CHOSEN, LEVELS, conditions, grouped
from analysis.load.frames import Frames
from analysis.statistics import ratio_interval

FEWEST = 6  # the fewest runs for which a median has an interval


def regions(frames: Frames) -> pd.DataFrame:
    """Wall time of each region, one row per (run, repeat, name), in seconds.

    `calls` over all ranks; `total_s`: mean over ranks of the time inside the region; `exclusive_s`: the same without
    regions within it; `max_s`: the largest total of a rank; `imbalance` = max / mean - 1; `share` = exclusive_s / wall
    time of the repeat. Ranks that never entered a region count as 0. Waiting for other ranks inside a collective is
    part of its time.
    """
    keys = ["run", "repeat", "name"]
    by_rank = (
        frames.events.groupby([*keys, "rank"], observed=True)[["count", "total_ns", "exclusive_ns"]]
        .sum()
        .reset_index()
    )
    table = by_rank.groupby(keys, observed=True).agg(
        calls=("count", "sum"),
        total=("total_ns", "sum"),
        own=("exclusive_ns", "sum"),
        most=("total_ns", "max"),
    )
    table = table.reset_index().astype({"run": "str", "name": "str"})
    table = table.merge(
        grouped(frames.runs)[["run", "repeat", "group", "cell", "size", "complete", "wall_s"]]
    )
    mean = table["total"] / table["size"]
    return table.assign(
        total_s=mean / 1e9,
        exclusive_s=table["own"] / table["size"] / 1e9,
        max_s=table["most"] / 1e9,
        imbalance=(table["most"] / mean - 1).where(mean > 0),
        share=table["own"] / table["size"] / 1e9 / table["wall_s"],
    ).drop(columns=["total", "own", "most"])


def summary(table: pd.DataFrame, each: Sequence[str] = ()) -> pd.DataFrame:
    """Medians of the `regions` in `table` over the complete runs of each (group, rank count), with their number `runs`.

    Regions with the most exclusive time come first. Values of the columns `each` are kept apart, in their order."""
    numbers = ["calls", "total_s", "exclusive_s", "max_s", "imbalance", "share"]
    by = table[table["complete"]].groupby([*each, "group", "size", "name"], sort=False)
    medians = by[numbers].median().assign(runs=by.size()).reset_index()
    most = medians.groupby([*each, "name"])["exclusive_s"].transform("max")
    first = medians.groupby(list(each), sort=False).ngroup() if each else 0
    return medians.assign(first=first, most=most).sort_values(
        ["first", "most", "name", "group", "size"], ascending=[True, False, True, True, True], kind="stable"
    ).drop(columns=["first", "most"]).reset_index(drop=True)  # fmt: skip


def costs(frames: Frames) -> pd.DataFrame:
    """Wall time of complete runs relative to the weakest guarantee measured under the same conditions: problem, rank
    count, and all factors but those that a guarantee chooses (`groups.CHOSEN`). One row per (run, repeat).

    `base` is the group of the weakest guarantee with the smallest median; `relative` = wall time / median wall time of
    the base. Empty if there is no second group to compare, or if no run has a guarantee that could cost time.
    """
    runs = grouped(frames.runs)
    runs = runs[runs["complete"] & ~runs["faulty"] & runs["wall_s"].notna()].copy()
    runs["conditions"] = conditions(runs, but=CHOSEN)
    pieces = []
    for _, same in runs.groupby(["problem", "size", "conditions"], sort=False):
        if same["group"].nunique() < 2 or (same["guarantee"] == LEVELS[0]).all():
            continue
        weakest = min(same["guarantee"], key=LEVELS.index)
        medians = same[same["guarantee"] == weakest].groupby("group", sort=False)["wall_s"].median()
        pieces.append(same.assign(base=medians.idxmin(), relative=same["wall_s"] / medians.min()))
    columns = ["group", "size", "guarantee", "run", "repeat", "wall_s", "base", "relative"]
    return pd.concat(pieces, ignore_index=True)[columns] if pieces else pd.DataFrame(columns=columns)


def cost_summary(points: pd.DataFrame) -> pd.DataFrame:
    """Median, minimum and maximum of `costs` per (group, size, base), with the number of `runs` and of the base;
    `relative_low`, `relative_high`: the interval of the ratio of medians by bootstrap (NaN for the base itself, and for
    fewer than 6 runs of either)."""
    rows = []
    for (group, size, base), same in points.groupby(["group", "size", "base"], sort=False):
        of_base = points[(points["group"] == base) & (points["size"] == size) & (points["base"] == base)]
        relative = same["relative"]
        low = high = np.nan
        if group != base:
            _, low, high = ratio_interval(same["wall_s"].to_numpy(), of_base["wall_s"].to_numpy())
        rows.append(
            (group, size, base, len(same), len(of_base), same["wall_s"].median(), relative.median(),
             relative.min(), relative.max(), low, high)
        )  # fmt: skip
    names = ["group", "size", "base", "runs", "base_runs", "median_s", "relative", "lowest", "highest",
             "relative_low", "relative_high"]  # fmt: skip
    return pd.DataFrame(rows, columns=names)


def withheld(row, points: pd.DataFrame, crowded: set[str]) -> str:
    """The reason why the cost in `row` of `cost_summary` is not shown, or the remedy; empty if it is shown.

    `crowded`: the runs whose ranks share cores."""
    runs = points[(points["size"] == row.size) & points["group"].isin((row.group, row.base))]
    if set(runs["run"]) & crowded:
        return "ranks share cores"
    return "launch six times" if min(row.runs, row.base_runs) < FEWEST else ""
