"""The figures of the price list: time against error, and time against N. A guarantee's index is its series number."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.groups import LEVELS
from analysis.page import svg
from analysis.page.axes import floor_of, log_axis, plain_ticks, powers
from analysis.page.svg import Figure, figure_of
from analysis.studies.sums.figures import GREY, each_drawn, name_of
from analysis.studies.sums.runs import SERIES, UNKNOWN
from analysis.studies.sums.tables import Known

GUARANTEES = (*LEVELS, UNKNOWN)
LETTER_PT = 8.5  # of labels at points
HEIGHTS_PT = (10, -10, 19, -19, 28, -28)  # possible heights of a label above and below its point


def price_figures(known: Known) -> list[Figure]:
    """Price against error at the largest timed size, and time per call against N."""
    figures = []
    for k, (title, prices) in each_drawn(known, known.prices):
        timed = prices[prices["median_s"].notna() & (prices["n"] > 0)]
        if timed.empty:
            continue
        n = int(timed["n"].max())
        at = timed[timed["n"] == n].merge(known.series[[*SERIES, "error_max", "v_s_max"]], on=SERIES)
        exact = at["error_max"].notna().any()  # the true sum is known
        column, label = (
            ("error_max", "largest error, ULP") if exact else ("v_s_max", "max |V_s| from the reference")
        )
        at = at[np.isfinite(at[column])]
        if len(at) > 1:
            caption = (
                f"N = {n:,}: median time over the number of elements, with its 95 % interval, against the "
                f"{label.removesuffix(', ULP')} of any sample{' in units in the last place' if exact else ''}. "
                "One point per variant; left is cheap, low is accurate. Points at the bottom are equal to the last "
                "bit. Names that would overlap are left out; the best variants keep theirs."
            )
            plot = _scatter(at, column, label, n)
            present = [i for i, level in enumerate(GUARANTEES) if (at["guarantee"] == level).any()]
            figures.append(
                figure_of(
                    f"sums-price-{k}", f"Price and error{title}", plot, caption, 3.6,
                    tuple((i, GUARANTEES[i]) for i in present),
                    data=at[["variant", "backend", "guarantee", "n", "median_s", "low_s", "high_s", column]],
                )
            )  # fmt: skip
        if timed["n"].nunique() > 1:
            figures.append(_time_figure(k, title, timed))
    return figures


def _scatter(at: pd.DataFrame, column: str, label: str, n: int) -> Callable:
    def plot(axes) -> None:
        floor = floor_of(at[column])
        x = at["median_s"].to_numpy() / n * 1e9
        y = np.where(at[column] == 0, floor, at[column])
        low, high = (at[name].to_numpy() / n * 1e9 for name in ("low_s", "high_s"))
        for i, level in enumerate(GUARANTEES):
            own = (at["guarantee"] == level).to_numpy()
            axes.hlines(y[own], low[own], high[own], color=svg.SERIES[i], linewidth=1.0)
            axes.plot(
                x[own],
                y[own],
                linestyle="none",
                alpha=0.85,
                clip_on=False,
                **svg.series(i) | {"markersize": 6},
            )
        axes.set_xscale("log")
        axes.set_xlim(x.min() / 1.5, x.max() * 2.2)
        plain_ticks(axes.xaxis)
        log_axis(axes.yaxis, axes.set_yscale, floor)
        axes.set(xlabel="median time per element, ns", ylabel=label)
        _labels(axes, x, y, at["variant"].tolist())

    return plot


def _labels(axes, x: np.ndarray, y: np.ndarray, names: list[str]) -> None:
    """Writes the names beside their points where there is room, first for points with the fewest better ones. A line
    connects a distant name to its point."""
    better = [int(((x <= a) & (y <= b) & ((x < a) | (y < b))).sum()) for a, b in zip(x, y, strict=True)]
    order = np.argsort(better, kind="stable")
    x, y, names = x[order], y[order], [names[i] for i in order]
    # Positions in points, for axes of about this size, since the final layout is not known yet.
    size = np.array([310.0, 205.0])
    limits = np.log10([axes.get_xlim(), axes.get_ylim()])
    points = (np.log10([x, y]).T - limits[:, 0]) / (limits[:, 1] - limits[:, 0]) * size
    left, right = 0.0, size[0]
    leader = {"arrowstyle": "-", "color": svg.INK, "linewidth": 0.5, "alpha": 0.6, "shrinkA": 0, "shrinkB": 3}
    taken = [(px - 4, py - 4, px + 4, py + 4) for px, py in points]
    for (px, py), at, name in zip(points, zip(x, y, strict=True), names, strict=True):
        wide = len(name) * LETTER_PT * 0.58
        beyond = [(dx, dy) for dy in HEIGHTS_PT for dx in (-wide / 2, 5, -5 - wide)]
        for dx, dy in ((7, 0), (-7 - wide, 0), *beyond):
            box = (px + dx, py + dy - 4.5, px + dx + wide, py + dy + 4.5)
            free = left <= box[0] and box[2] <= right
            if free and not any(_touch(box, other) for other in taken):
                taken.append(box)
                axes.annotate(
                    name, at, (dx, dy), textcoords="offset points", va="center", fontsize=LETTER_PT,
                    arrowprops=leader if abs(dy) > 10 else None, annotation_clip=False,
                ).set_in_layout(False)  # fmt: skip
                break


def _touch(a: tuple, b: tuple) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _time_figure(k: int, title: str, timed: pd.DataFrame) -> Figure:
    n = timed["n"].max()
    best = {}
    for level in GUARANTEES:
        same = timed[(timed["n"] == n) & (timed["guarantee"] == level)]
        if len(same):
            row = same.loc[same["median_s"].idxmin()]
            best[row["variant"], row["backend"]] = GUARANTEES.index(level)
    legend = [(i, f"{name_of(*key)}: {GUARANTEES[i]}") for key, i in best.items()]
    by = timed.groupby(["variant", "backend"], observed=True, sort=True)
    rest = by.ngroups - len(best)
    caption = (
        "Median time of one call on the slowest rank against the number of elements, both axes logarithmic. In colour: "
        f"the fastest variant of each guarantee at N = {n:,}"
        + (f"; in grey: the {rest} others." if rest else ".")
    )

    def plot(axes) -> None:
        for key, same in by:
            i = best.get(key)
            look = {"color": svg.SERIES[GREY], "alpha": 0.45} if i is None else svg.series(i) | {"zorder": 3}
            axes.plot(same["n"], same["median_s"] * 1e6, **look)
        axes.set(xscale="log", yscale="log", xlabel="elements N", ylabel="median time per call, µs")
        powers(axes.xaxis)
        plain_ticks(axes.yaxis)

    data = timed[["variant", "backend", "guarantee", "n", "median_s"]]
    return figure_of(f"sums-time-{k}", f"Time and size{title}", plot, caption, 3.1, legend, data=data)
