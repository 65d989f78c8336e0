"""The figures of a score: measured over predicted times, and errors beside floors."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from analysis.page import svg
from analysis.page.axes import plain_ticks
from analysis.page.svg import Figure, figure_of
from analysis.predict.scoring.baselines import NAMES
from analysis.predict.scoring.score import COLUMN, Score
from analysis.predict.scoring.tables import method_words, names

DRAWN = 24  # most targets in a figure
SERIES = 7  # colours and markers
LETTERS = 62  # most characters of a label above a row


def measured_figures(score: Score) -> list[Figure]:
    """Measured over predicted time per step, with the 80 % interval of each prediction."""
    targets = score.targets
    if not len(targets):
        return []
    looks = series_of(targets)
    place = {name: i % SERIES for i, name in enumerate(dict.fromkeys(looks.values()))}
    caption = (
        "Every run is a point. The bar is the predicted 80 % interval of its target, at the median measured time. Four "
        "of five bars should cross the dotted line of equal times; above the line, a step took longer than predicted."
    )

    def plot(axes) -> None:
        axes.set(xlabel="predicted, ms per step", ylabel="measured, ms per step", xscale="log", yscale="log")
        for target in targets.itertuples(index=False):
            own = 1e3 * score.samples.loc[score.samples["row"] == target.row, "seconds"]
            look = svg.series(place[looks[target.app, target.method]])
            axes.plot([1e3 * target.median_s] * len(own), own, linestyle="none", alpha=0.85, **look)
            span = [1e3 * target.low_s, 1e3 * target.high_s]
            axes.plot(
                span, [1e3 * target.measured_s] * 2, color=look["color"], linewidth=1.6, solid_capstyle="butt"
            )
        both = [*axes.get_xlim(), *axes.get_ylim()]
        ends = min(both), max(both)
        axes.plot(ends, ends, color=svg.INK, linewidth=0.9, linestyle=":")
        axes.set(xlim=ends, ylim=ends)
        for axis in (axes.xaxis, axes.yaxis):
            plain_ticks(axis)

    data = score.samples[["row", "run", "repeat", "seconds"]].merge(
        targets[["row", "app", "method", "guarantee", "ranks", "median_s", "low_s", "high_s"]], on="row"
    )
    legend = tuple((k, name) for name, k in place.items())
    return [
        figure_of(
            "predict-measured", "Measured against predicted times", plot, caption, 3.9, legend, data=data
        )
    ]


def series_of(targets: pd.DataFrame) -> dict[tuple[str, str], str]:
    """{(app, method): its name}: the app, with the guarantee if the app has several methods, and with the hash of the
    method if several methods have that guarantee."""
    known = targets[["app", "method", "guarantee"]].drop_duplicates(["app", "method"])
    return {
        (str(app), each.method): ", ".join([str(app), *method_words(each, own)])
        for app, own in known.groupby("app", sort=False)
        for each in own.itertuples(index=False)
    }


def error_figures(score: Score) -> list[Figure]:
    """The error of each target by the prediction and each baseline, beside its floor."""
    targets = score.targets.sort_values(["error", "row"], ascending=[False, True])
    if not len(targets):
        return []
    more = f" {len(targets) - DRAWN} more targets are in the table." if len(targets) > DRAWN else ""
    targets = targets.head(DRAWN)
    known = names(score.targets)
    methods = ("prediction", *NAMES)
    columns = ("error", *(column.replace("_s", "_error") for column in COLUMN.values()))
    caption = (
        "Error of each target, the largest first, by the prediction and by three simple ones. The grey bar is the "
        f"floor, the spread between runs of one configuration: an error inside it may be noise.{more}"
    )

    def plot(axes) -> None:
        for y, target in enumerate(targets.itertuples(index=False)):
            if target.floor == target.floor:
                axes.barh(y + 0.16, 100 * target.floor, height=0.42, color=svg.FAINT)
            for k, column in enumerate(columns):
                error = 100 * getattr(target, column)
                if math.isfinite(error):
                    axes.plot(error, y + 0.16, linestyle="none", clip_on=False, **svg.series(k))
            text = known[target.row]
            text = text if len(text) <= LETTERS else f"{text[: LETTERS - 1]}…"
            axes.annotate(
                text, (0.0, y - 0.26), xycoords=("axes fraction", "data"), va="center", fontsize=9
            ).set_in_layout(False)
        axes.set_ylim(len(targets) - 0.45, -0.6)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.grid(axis="y", visible=False)
        largest = np.nanmax(targets[list(columns)].to_numpy(float))
        if largest > 2:
            axes.set_xscale("symlog", linthresh=10)
            plain = [0, 10, 100, 1000, 10_000, 100_000]
            ticks = [tick for tick in plain if tick <= 200 * largest]
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_xlim(left=0)
        axes.set_xlabel("error, %")

    shown = [k for k, column in enumerate(columns) if targets[column].notna().any()]
    data = targets[["row", "app", "ranks", "floor", *columns]]
    return [
        figure_of("predict-errors", "Errors beside their floors", plot, caption, 0.75 + 0.5 * len(targets),
                  tuple((k, methods[k]) for k in shown), data=data)
    ]  # fmt: skip
