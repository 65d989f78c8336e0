"""Figures of the study of learning: accuracy, prices of wires, decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.page import svg
from analysis.page.axes import floor_of, log_axis, plain_ticks
from analysis.page.svg import Figure, figure_of
from analysis.studies.learning.prices import at, common_rates, named
from analysis.studies.learning.tables import Known

DRAWN = 4  # most families with figures; the tables have all
COLOURS = 7  # most lines of a family in a figure
POINTS = 3000  # most points of a figure: beyond, it shows every k-th evaluation, but all runs
AXES = {"seconds": ("time", "time of training, s"), "step": ("steps", "step")}


def left_out(known: Known) -> int:
    """The number of families without figures."""
    return max(0, known.prices["family"].nunique() - DRAWN)


def accuracy_figures(known: Known) -> list[Figure]:
    """Accuracy over time and over steps: the median over seeds and the band of all seeds, for each line."""
    figures = []
    for drawn in _families(known):
        for column, (name, label) in AXES.items():
            bands = [
                (i, band(drawn.curves[(drawn.curves["line"] == line).to_numpy()], column))
                for i, line in enumerate(drawn.lines)
            ]
            bands = [(i, own) for i, own in bands if (own[column] > 0).any()]  # no times: --trace off
            if not bands:
                continue
            caption = (
                f"Accuracy of every evaluation, {drawn.rate}: lines are medians over runs of different seeds, bands "
                "contain all these runs"
                + (
                    " at times when half of them or more train; between evaluations lines are straight."
                    if column == "seconds"
                    else "."
                )
                + " If bands overlap, the tables say whether the wires differ over these seeds."
                + drawn.more
            )  # fmt: skip
            data = pd.concat([own.assign(line=drawn.lines[i]) for i, own in bands], ignore_index=True)
            legend = tuple((i, drawn.lines[i]) for i, _ in bands)
            figures.append(
                figure_of(
                    f"training-{name}-{drawn.number}", f"Accuracy over {name}{drawn.end}",
                    _bands(bands, column, label), caption, 3.3, legend, data=data,
                )
            )  # fmt: skip
    return figures


def apart_figures(known: Known) -> list[Figure]:
    """V_ermv of the sampled weights over steps, a line for each factor in which runs differ."""
    figures = []
    for number, (family, same) in enumerate(known.apart.groupby("family", sort=False)):
        factors = same["factor"].drop_duplicates().tolist()[:COLOURS]
        if number == DRAWN:
            break
        drawn = same[same["factor"].isin(factors).to_numpy()]
        caption = (
            "Mean relative difference of sampled weights between runs that differ in one factor: medians over pairs of "
            "runs; bands contain all pairs."
        )
        figures.append(
            figure_of(
                f"training-apart-{number}", f"Weights apart{f': {family}' if family else ''}", _apart(drawn, factors),
                caption, 3.3, tuple(enumerate(factors)), data=drawn,
            )
        )  # fmt: skip
    return figures


def _apart(drawn: pd.DataFrame, factors: list[str]) -> Callable:
    floor = floor_of(drawn["v_ermv_least"])

    def plot(axes) -> None:
        for i, factor in enumerate(factors):
            own = drawn[(drawn["factor"] == factor).to_numpy()].sort_values("step")
            middle, least, most = (
                np.maximum(own[name], floor) for name in ("v_ermv", "v_ermv_least", "v_ermv_most")
            )
            axes.plot(own["step"], middle, **svg.series(i))
            axes.fill_between(own["step"], least, most, color=svg.SERIES[i], alpha=0.2, linewidth=0)
        axes.set(xlabel="step", ylabel="V_ermv")
        log_axis(axes.yaxis, axes.set_yscale, floor)

    return plot


def price_figures(known: Known) -> list[Figure]:
    """The final accuracy of every run against the bytes that a rank sends per step."""
    figures = []
    for drawn in _families(known):
        runs = drawn.runs[
            (drawn.runs["bytes"] > 0).to_numpy() & drawn.runs["line"].isin(drawn.lines).to_numpy()
        ]
        if runs["line"].nunique() < 2:
            continue
        points = [(i, runs[(runs["line"] == line).to_numpy()]) for i, line in enumerate(drawn.lines)]
        points = [(i, own) for i, own in points if len(own)]
        caption = (
            f"Final accuracy against the bytes of a rank's reductions per step, {drawn.rate}; every run is a point. "
            "Left is cheaper, up is better." + drawn.more
        )
        legend = tuple((i, drawn.lines[i]) for i, _ in points)
        data = runs[["line", "seeds", "run", "repeat", "bytes", "accuracy"]]
        figures.append(
            figure_of(f"training-price-{drawn.number}", f"Accuracy against bytes{drawn.end}", _prices(points), caption,
                      3.1, legend, data=data)
        )  # fmt: skip
    return figures


def decision_figures(known: Known) -> list[Figure]:
    """The outcome of each decision against that of its trial."""
    shown = ["family", "line", "seeds", "run", "repeat", "step", "choice", "tried_per_s", "gained_per_s"]
    rows = known.decisions[shown]
    rows = rows[np.isfinite(rows[["tried_per_s", "gained_per_s"]]).all(axis=1)]
    lines = list(dict.fromkeys(rows["line"]))
    points = [(i, rows[(rows["line"] == line).to_numpy()]) for i, line in enumerate(lines[:COLOURS])]
    if not points:
        return []
    rest = len(lines) - COLOURS
    caption = (
        "Every decision is a point: the decrease of the loss per second until the next decision, against the decrease "
        "in the last trial of this wire. If points rise to the right, trials predict outcomes. Below the line, the "
        "loss rose." + (f" {rest} more are in the table." if rest > 0 else "")
    )
    legend = tuple((i, lines[i]) for i, _ in points)
    data = rows[rows["line"].isin(lines[:COLOURS])]
    title = "Choices of wires, trial and outcome"
    return [figure_of("training-decisions", title, _decided(points), caption, 3.1, legend, data=data)]


def band(curves: pd.DataFrame, column: str) -> pd.DataFrame:
    """Medians over runs of one line of `accuracy`, and `least` and `most` accuracy: by `step`, of the evaluations that
    all runs share; by `seconds`, on straight lines between evaluations, where at least half of the runs train."""
    runs = [own.sort_values(column) for _, own in curves.groupby(["run", "repeat"])]
    at = np.unique(np.concatenate([own[column] for own in runs])).astype(np.float64)
    if column == "step":
        at = at[np.all([np.isin(at, own[column]) for own in runs], axis=0)]
    every = np.array([np.interp(at, own[column], own["accuracy"], np.nan, np.nan) for own in runs])
    many = 2 * (~np.isnan(every)).sum(0) >= len(runs)
    at, every = at[many], every[:, many]
    found = {"accuracy": np.nanmedian(every, 0), "least": np.nanmin(every, 0), "most": np.nanmax(every, 0)}
    own = pd.DataFrame(found | {column: at})
    return own.iloc[:: max(1, -(-len(own) * COLOURS // POINTS))]


@dataclass(frozen=True)
class Drawn:
    """A family with figures: its `number`, the `end` of titles, the most common `rate` in words, the complete `runs` at
    this rate and their `curves`, the `lines` to draw, `more`: a sentence on the other lines."""

    number: int
    end: str
    rate: str
    runs: pd.DataFrame
    curves: pd.DataFrame
    lines: list[str]
    more: str


def _families(known: Known) -> Iterator[Drawn]:
    complete = known.recorded.runs[known.recorded.runs["complete"].to_numpy()]
    families = list(dict.fromkeys(known.prices["family"]))
    for k, family in enumerate(families[:DRAWN]):
        own = complete[(complete["family"] == family).to_numpy()]
        rate = common_rates(own)[0]
        runs = at(own, rate)
        lines = list(dict.fromkeys(runs["line"]))
        rest = len(lines) - COLOURS
        yield Drawn(
            number=k,
            end=f": {family}" if len(families) > 1 else "",
            rate=named(rate),
            runs=runs,
            curves=known.recorded.curves.merge(runs[["run", "repeat"]], on=["run", "repeat"]),
            lines=lines[:COLOURS],
            more=f" {rest} more are in the table." if rest > 0 else "",
        )


def _bands(lines: list[tuple[int, pd.DataFrame]], column: str, label: str) -> Callable:
    def plot(axes) -> None:
        for i, own in lines:
            look = svg.series(i)
            axes.fill_between(
                own[column],
                100 * own["least"],
                100 * own["most"],
                color=look["color"],
                alpha=0.18,
                linewidth=0,
            )
            axes.plot(own[column], 100 * own["accuracy"], markersize=3, **look)
        axes.set(xlabel=label, ylabel="accuracy, %")

    return plot


def _prices(points: list[tuple[int, pd.DataFrame]]) -> Callable:
    def plot(axes) -> None:
        for i, own in points:
            axes.plot(own["bytes"], 100 * own["accuracy"], linestyle="none", alpha=0.8, **svg.series(i))
        axes.set(xlabel="bytes per rank and step", ylabel="accuracy, %", xscale="log")
        plain_ticks(axes.xaxis)

    return plot


def _decided(points: list[tuple[int, pd.DataFrame]]) -> Callable:
    def plot(axes) -> None:
        axes.axhline(0.0, color=svg.INK, linewidth=0.9, linestyle=":")
        for i, own in points:
            axes.plot(own["tried_per_s"], own["gained_per_s"], linestyle="none", alpha=0.8, **svg.series(i))
        axes.set(xlabel="decrease of the loss in the trial, per s", ylabel="decrease of the loss, per s")

    return plot
