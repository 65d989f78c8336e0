"""The figures of the report on variability, times and costs: frames in, SVG out. Runs and pairs of runs are points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.groups import ranks_text
from analysis.page import svg
from analysis.page.axes import floor_of, log_axis, log_ticks
from analysis.page.groups import figure_of_groups
from analysis.page.svg import Figure
from analysis.pairs import EACH_OTHER, Pairs, frame_of
from analysis.regions import cost_summary, withheld
from analysis.verdict import counted

REGIONS = 10  # the longest regions are drawn, the table has all
POINTS = 6000  # of a row of points, above which it is an image
DRAWN = 2000  # of a figure of runs, above which its points are an image
SPREAD = 0.09  # vertical distance of points in one row, so that equal ones are seen


def variability_figures(pairs: list[Pairs], groups: list[str]) -> list[Figure]:
    """V_ermv of the value with the most elements and |V_s| of the first single number, every pair a point,
    run-to-run apart from against the reference."""
    figures = []
    values = [each for each in pairs if each.kind == "values"]
    elements: dict[str, int] = {}
    for each in values:
        elements[each.name] = max(each.elements, elements.get(each.name, 0))
    most = max(elements, key=lambda name: elements[name], default=None)
    single = next((each for each in values if each.elements == 1 and (each.metrics["v_s"] != 0).any()), None)
    chosen = [(most, "v_ermv", "V_ermv", "mean relative difference")] if most else []
    chosen += [(single.name, "v_s", "|V_s|", "relative difference")] if single else []
    for name, column, metric, words in chosen:
        same = frame_of(each for each in values if each.name == name)
        same = same[np.isfinite(same[column])]
        if same.empty:
            continue
        keys = ["group", "cell", "against"]
        apart = same[column].ne(0).groupby([same[key] for key in keys], sort=False).transform("any")
        equal = same.loc[~apart, keys].drop_duplicates().shape[0]
        same = same[apart]
        if same.empty:
            continue
        by = same.groupby(keys, sort=False)
        rows = [
            (_row_text(cell, group, against), groups.index(group), row[column].abs().to_numpy(), False)
            for (group, cell, against), row in by
        ]
        caption = (
            f"{metric} of {name} at the last step, every pair of runs a point: runs of a group against each "
            "other, and apart from that against the reference, which also holds the change of algorithm."
            + (f" Not drawn: {counted(equal, 'row')} in which all runs are equal." if equal else "")
        )
        plot = _rows(rows, f"{words}, {metric}", log=True)
        title = f"How far runs lie apart: {name}"
        data = same[["group", "cell", "against", "a", "b", "name", "step", column, "max_ulp"]]
        data = data.assign(**{column: data[column].abs()})
        figures.append(
            figure_of_groups(f"variability-{column}", title, plot, caption, data, groups, len(rows))
        )
    return figures


def time_figures(table: pd.DataFrame, groups: list[str]) -> list[Figure]:
    """Exclusive time and imbalance per region at the rank count at which most groups were measured, every
    run a point. `table` as `regions` returns it."""
    table = table[table["complete"]]
    # Of equally many groups the highest rank count: that is where communication shows.
    size = max(sorted(set(table["size"])), key=lambda n: (table[table["size"] == n]["group"].nunique(), n))
    same = table[table["size"] == size]
    longest = same.groupby("name")["exclusive_s"].median().sort_values(ascending=False)
    names = longest.index[:REGIONS].tolist()
    on = ranks_text(size)
    time = (
        f"Time inside each region and in none within it, mean over the {on}, every run a point. Waiting for "
        "other ranks counts to the collective in which it happens."
    )
    plots = [("exclusive_s", "exclusive time, s", f"Wall time per region on {on}", time)]
    if size > 1:
        balance = (
            "Time of the slowest rank over the mean, less one: 0 is perfect balance. A region that waits "
            "takes longest on the rank that comes first."
        )
        plots.append(("imbalance", "imbalance, max / mean - 1", f"Imbalance per region on {on}", balance))
    figures = []
    for column, label, title, caption in plots:
        data = same.loc[same["name"].isin(names) & np.isfinite(same[column])]
        data = data[["group", "size", "run", "repeat", "name", column]]
        plot = _regions(data, column, label, names, groups)
        figures.append(figure_of_groups(column, title, plot, caption, data, groups, len(names) * 0.75))
    return figures


def cost_figures(
    points: pd.DataFrame, runs: pd.DataFrame, groups: list[str], crowded: set[str]
) -> list[Figure]:
    """Relative wall time, every run a point and the median a bar where the cost is shown, one row per (rank count,
    group); the same against the rank count, with intervals, and the wall time of `runs` (grouped), where there are
    several rank counts. `crowded`: the runs whose ranks share cores."""
    figures = []
    summary = cost_summary(points)
    told = [not withheld(row, points, crowded) for row in summary.itertuples(index=False)]
    shown = summary[np.array(told, bool)]
    barred = set(zip(shown["size"], shown["group"], strict=True))
    if len(points):
        order = points.assign(place=points["group"].map(groups.index)).groupby(["size", "place"])
        rows = [
            (f"{ranks_text(size)}, n = {len(same)}", place, same["relative"].to_numpy(),
             (size, groups[place]) in barred)
            for (size, place), same in order
        ]  # fmt: skip
        caption = (
            "Wall time of a whole repeat over the median of the weakest guarantee on the same problem and "
            f"rank count. Every run is a point{', the bar is the median where a cost is shown' if barred else ''}."
        )
        plot = _rows(rows, "wall time relative to the weakest guarantee", log=False)
        data = points[["group", "size", "run", "repeat", "wall_s", "base", "relative"]]
        figures.append(
            figure_of_groups("cost", "What a guarantee costs", plot, caption, data, groups, len(rows))
        )
    if points["size"].nunique() > 1:
        caption = (
            "Wall time over that of the weakest guarantee, against the rank count: every run a point"
            + (", and the ratio of medians as a dark bar, with its 95 % interval by bootstrap, where a cost is shown."
               if barred else ".")
        )  # fmt: skip
        plot = _costs_by_size(points, shown, groups)
        title = "What a guarantee costs, and the rank count"
        data = points[["group", "size", "run", "repeat", "wall_s", "base", "relative"]]
        figures.append(figure_of_groups("cost-ranks", title, plot, caption, data, groups))
    if runs["size"].nunique() > 1:
        caption = "Wall time of a whole repeat, every run a point. Both axes are logarithmic."
        data = runs[["group", "size", "run", "repeat", "wall_s"]]
        plot = _by_size(runs, groups)
        figures.append(figure_of_groups("wall", "Wall time and rank count", plot, caption, data, groups))
    return figures


def _rows(rows: list[tuple[str, int, np.ndarray, bool]], label: str, log: bool) -> Callable:
    """One row of points per (text, series, numbers, whether their median is a bar), the text above its points."""

    def plot(axes) -> None:
        floor = floor_of(np.concatenate([numbers for _, _, numbers, _ in rows])) if log else 0.0
        for y, (text, series, numbers, median) in enumerate(rows):
            x = np.where(numbers == 0, floor, numbers)
            offset = SPREAD * (np.arange(len(x)) % 3 - 1)
            if len(x) > POINTS:
                x, offset = _told_apart(x, offset, log)
            axes.plot(
                x,
                y + 0.12 + offset,
                linestyle="none",
                alpha=0.8,
                clip_on=False,
                rasterized=len(numbers) > POINTS,
                **svg.series(series),
            )
            if median:
                axes.vlines(
                    np.median(np.where(numbers == 0, floor, numbers)),
                    y - 0.12,
                    y + 0.36,
                    color=svg.INK,
                    linewidth=1.6,
                )
            axes.annotate(
                text, (0.0, y - 0.3), xycoords=("axes fraction", "data"), va="center", fontsize=9
            ).set_in_layout(False)
        axes.set_ylim(len(rows) - 0.45, -0.6)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(label)
        if log:
            log_axis(axes.xaxis, axes.set_xscale, floor)

    return plot


def _told_apart(x: np.ndarray, offset: np.ndarray, log: bool) -> tuple[np.ndarray, np.ndarray]:
    """The points that lie in different places of an image: of those in one place, the first."""
    at = np.log10(x) if log else x
    low, high = at.min(), at.max()
    place = np.round((at - low) / (high - low) * POINTS) if high > low else np.zeros(len(at))
    _, first = np.unique(place * 3 + np.round(offset / SPREAD), return_index=True)
    return x[first], offset[first]


def _regions(table: pd.DataFrame, column: str, label: str, names: list[str], groups: list[str]) -> Callable:
    present = [group for group in groups if group in set(table["group"])]
    many = len(table) > DRAWN

    def plot(axes) -> None:
        for k, group in enumerate(present):
            own = table[table["group"] == group]
            shift = 0.6 * ((k + 0.5) / len(present) - 0.5)
            for y, name in enumerate(names):
                x = own.loc[own["name"] == name, column].to_numpy()
                look = svg.series(groups.index(group))
                axes.plot(x, np.full(len(x), y + shift), linestyle="none", alpha=0.8, clip_on=False,
                          rasterized=many, **look)  # fmt: skip
        axes.set_yticks(range(len(names)), names)
        axes.set_ylim(len(names) - 0.5, -0.5)
        axes.set_xlim(left=0)
        axes.locator_params(axis="x", nbins=5)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(label)

    return plot


def _costs_by_size(points: pd.DataFrame, shown: pd.DataFrame, groups: list[str]) -> Callable:
    sizes = sorted(set(points["size"]))
    present = [group for group in groups if group in set(points["group"])]

    def place(frame: pd.DataFrame, group: str) -> np.ndarray:
        # Groups side by side; rank counts as categories, since nothing is known between them.
        shift = 0.6 * ((present.index(group) + 0.5) / len(present) - 0.5)
        return frame["size"].map(sizes.index).to_numpy() + shift

    def plot(axes) -> None:
        axes.axhline(1.0, color=svg.INK, linewidth=0.9, linestyle=":")
        for group, same in points.groupby("group", sort=False):
            look = svg.series(groups.index(group))
            x, many = place(same, group), len(points) > DRAWN
            axes.plot(x, same["relative"], linestyle="none", alpha=0.45, rasterized=many, **look)
        for group, same in shown.groupby("group", sort=False):
            x, colour = place(same, group), svg.series(groups.index(group))["color"]
            axes.vlines(x, same["relative_low"], same["relative_high"], color=colour, linewidth=2.2)
            axes.hlines(same["relative"], x - 0.12, x + 0.12, color=svg.INK, linewidth=1.6)
        axes.set_xticks(range(len(sizes)), list(map(str, sizes)))
        axes.set(xlabel="ranks", ylabel="wall time over that of the base", yscale="log")
        ticks = log_ticks(*axes.get_ylim())
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_yticks([], minor=True)

    return plot


def _by_size(runs: pd.DataFrame, groups: list[str]) -> Callable:
    def plot(axes) -> None:
        for group, same in runs.groupby("group", sort=False):
            look = svg.series(groups.index(group))
            many = len(runs) > DRAWN
            axes.plot(same["size"], same["wall_s"], linestyle="none", alpha=0.8, rasterized=many, **look)
        sizes = sorted(set(runs["size"]))
        axes.set(xlabel="ranks", ylabel="wall time, s", xscale="log", yscale="log")
        axes.set_xticks(sizes, list(map(str, sizes)))
        ticks = log_ticks(*axes.get_ylim())
        axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.set_xticks([], minor=True)
        axes.set_yticks([], minor=True)

    return plot


def _row_text(cell: str, group: str, against: str) -> str:
    """What tells a row from the others of its group, which has its colour."""
    on = cell.removeprefix(f"{group} on ") if cell != group else "all rank counts"
    return f"{on}, {against if against == EACH_OTHER else f'against {against}'}"
