"""Figures of the study of scaling. Every run is a point; a fit covers only measured rank counts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from analysis.groups import ranks_text
from analysis.page import svg
from analysis.page.axes import log_ticks
from analysis.page.svg import Figure, figure_of
from analysis.studies.scaling.fit import curve
from analysis.studies.scaling.known import Known
from analysis.studies.scaling.series import STRONG, WEAK, scaled
from analysis.studies.scaling.tables import largest

COLOURS = 7  # most series of a figure
STACKED = 6  # most named parts of a bar, the others are one part
BARS = 24
HEADING = 1.0  # height of the name of a series above its bars, in bars
OTHERS = "others"
RUNS = ["series", "size", "run", "repeat"]


def speedup_figures(known: Known) -> list[Figure]:
    """Speedup and efficiency of strong and of weak series against the rank count."""
    figures, points = [], scaled(known.points)
    for kind in (STRONG, WEAK):
        own = points[points["kind"] == kind]
        names = list(dict.fromkeys(own["series"]))
        if not names:
            continue
        more = f" {len(names) - COLOURS} more series are in the table." if len(names) > COLOURS else ""
        names = names[:COLOURS]
        looks = _looks(names, known.labels)
        law = (
            known.fits[known.fits["series"].isin(names) & known.fits["chosen"]]
            if len(known.fits)
            else known.fits
        )
        fitted = " Lines: the law with the smallest AICc, over the measured rank counts." * bool(len(law))
        base = " The ideal assumes efficiency 1 on the fewest ranks." if (own["base"] > 1).any() else ""
        for column, ideal in (("speedup", "Dotted: the ideal, p."), ("efficiency", "Dotted: the ideal, 1.")):
            title = f"{column.capitalize()}, {kind} scaling"
            caption = f"{_meaning(kind, column)} Every run is a point. {ideal}{base}{fitted}{more}"
            plot = _against_ranks(own, looks, law, column)
            name = f"scaling-{kind}-{column}"
            data = own.loc[own["series"].isin(names), [*RUNS, "wall_s", "base", column]]
            figures.append(figure_of(name, title, plot, caption, 3.3, _legend(looks), data=data))
    return figures


def communication_figures(known: Known) -> list[Figure]:
    """Share of the run time in each collective and exchange."""
    caption = (
        "Share of the run time in each collective and exchange, mean over ranks, with waiting for late ranks and "
        "without local work inside. One bar for the median run on each rank count."
    )
    return _stacked(known.traced["collectives"], "share", "scaling-communication", "Communication by collective",
                    "share of the run time", caption)  # fmt: skip


def path_figures(known: Known) -> list[Figure]:
    """The critical path by region, for series whose ranks wait for each other."""
    table = known.traced["path_regions"]
    table = table[table["series"].isin(known.traced["collectives"]["series"])]
    caption = (
        "The critical path by region: the chain of work and waits across ranks that determines the run time. A "
        "collective on it counts with its own cost, after the last rank arrived. One bar for the median run on each "
        "rank count."
    )
    return _stacked(table, "share", "scaling-path", "Critical path by region",
                    "share of the critical path", caption)  # fmt: skip


def straggler_figures(known: Known) -> list[Figure]:
    """The waiting of all ranks for each rank, on the largest rank count of each series."""
    rows = [(name, own) for name, own in largest(known.traced["stragglers"]) if (own["caused_s"] > 0).any()][
        :COLOURS
    ]
    if not rows:
        return []
    caption = (
        "Waiting of all other ranks for each rank that arrives last, as a share of all such waiting, on the largest "
        "rank count of each series. Even shares are chance, such as noise of the system; a rank that stands out has "
        "more work or a slower processor."
    )

    def plot(axes) -> None:
        for _, own in rows:
            look = svg.series(looks[own["series"].iloc[0]])
            axes.plot(own["rank"], 100 * own["share"], linestyle="none", alpha=0.85, clip_on=False, **look)
        axes.set(xlabel="rank", ylabel="waiting caused, %")
        axes.set_ylim(bottom=0)
        axes.xaxis.get_major_locator().set_params(integer=True)

    looks = _looks([own["series"].iloc[0] for _, own in rows], known.labels)
    legend = tuple((looks[name], name) for name in (own["series"].iloc[0] for _, own in rows))
    data = pd.concat([own[[*RUNS, "rank", "caused_s", "share"]] for _, own in rows], ignore_index=True)
    return [
        figure_of("scaling-stragglers", "Ranks that others wait for", plot, caption, 3.0, legend, data=data)
    ]


def _looks(names: Sequence[str], labels: Sequence[str]) -> dict[str, int]:
    """{name: number of its colour}: the index in `labels`, or for other series the numbers after these."""
    beyond = itertools.count(len(labels))
    return {name: labels.index(name) if name in labels else next(beyond) for name in names}


def _legend(looks: dict[str, int]) -> tuple[tuple[int, str], ...]:
    return tuple((i, name) for name, i in looks.items())


def _meaning(kind: str, column: str) -> str:
    if column == "speedup":
        return "T1/Tp." if kind == STRONG else "p T1/Tp: the factor of work in the same time."
    return "Speedup over the rank count." if kind == STRONG else "T1/Tp, the work per rank constant."


def _against_ranks(own: pd.DataFrame, looks: dict[str, int], law: pd.DataFrame, column: str) -> Callable:
    def plot(axes) -> None:
        sizes = sorted(set(own["size"]))
        ends = np.array([sizes[0], sizes[-1]], float)
        ideal = ends if column == "speedup" else np.ones(2)
        axes.plot(ends, ideal, color=svg.INK, linewidth=0.9, linestyle=":")
        for name, i in looks.items():
            same = own[own["series"] == name]
            axes.plot(same["size"], same[column], linestyle="none", alpha=0.8, **svg.series(i))
            for row in law[law["series"] == name].itertuples(index=False):
                p = np.geomspace(row.p_low, row.p_high, 100)
                p[[0, -1]] = row.p_low, row.p_high
                base = same["base"].iloc[0]
                first = same.loc[same["size"] == base, "wall_s"].median()
                speedup = first / curve(row, p) * (base if row.kind == STRONG else p)
                axes.plot(p, speedup / (p if column == "efficiency" else 1), color=svg.series(i)["color"])
        axes.set(xlabel="ranks", ylabel=column, xscale="log")
        shown = sizes if len(sizes) <= 8 else sizes[:: -(-len(sizes) // 8)]
        axes.set_xticks(shown, list(map(str, shown)))
        axes.set_xticks([], minor=True)
        if column == "speedup":
            axes.set_yscale("log")
            ticks = log_ticks(*axes.get_ylim())
            axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
            axes.set_yticks([], minor=True)
        else:
            axes.set_ylim(bottom=0)

    return plot


def _stacked(
    table: pd.DataFrame, column: str, name: str, title: str, label: str, caption: str
) -> list[Figure]:
    """A figure with a bar for each series and rank count, divided by the column `name` of `table`."""
    if not len(table):
        return []
    bars = table.drop_duplicates(["series", "size"])[["series", "size"]]
    more = f" {len(bars) - BARS} more bars are left out." if len(bars) > BARS else ""
    bars = list(bars.head(BARS).itertuples(index=False, name=None))
    heaviest = (
        table.groupby("name", sort=False)[column].sum().sort_values(ascending=False, kind="stable").index
    )
    parts = heaviest[: STACKED if len(heaviest) > STACKED + 1 else STACKED + 1].tolist()
    rest = len(parts) < len(heaviest)
    by_bar = {key: own.set_index("name")[column] for key, own in table.groupby(["series", "size"])}

    headed = [i == 0 or bars[i - 1][0] != series for i, (series, _) in enumerate(bars)]
    places = [i + HEADING * (sum(headed[: i + 1])) for i in range(len(bars))]

    def plot(axes) -> None:
        for y, first, (series, size) in zip(places, headed, bars, strict=True):
            own, left = by_bar[series, size], 0.0
            widths = [100 * float(own.get(part, 0.0)) for part in parts]
            widths += [100 * float(own.sum()) - sum(widths)] * rest
            for i, width in enumerate(widths):
                axes.barh(y, width, left=left, height=0.62, color=svg.series(i)["color"])
                left += width
            if first:
                axes.annotate(
                    series, (0.0, y - 0.85), xycoords=("figure fraction", "data"), va="center", fontsize=9
                ).set_in_layout(False)
        axes.set_ylim(places[-1] + 0.5, places[0] - 0.5 - HEADING)
        axes.set_yticks(places, [ranks_text(size) for _, size in bars])
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"{label}, %")

    legend = tuple(enumerate([*parts, *[OTHERS] * rest]))
    drawn = pd.MultiIndex.from_frame(table[["series", "size"]]).isin(bars)
    data = table.loc[drawn, [*RUNS, "name", column]]
    height = 0.75 + 0.3 * (len(bars) + HEADING * sum(headed))
    return [figure_of(name, title, plot, caption + more, height, legend, data=data)]
