"""The figure of bits against speed."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.page import svg
from analysis.page.axes import plain_ticks
from analysis.page.svg import Figure, figure_of
from analysis.studies.answers.runs import Answers

DRAWN = 7  # most cases in a figure


def answer_figures(known: Answers) -> list[Figure]:
    """The share of images with several results against the median time of a request; none without times."""
    runs = known.runs[(known.runs["seconds"] > 0).to_numpy()]
    cases = runs["case"].drop_duplicates().tolist()[:DRAWN]
    if not cases:
        return []
    runs = runs[runs["case"].isin(cases).to_numpy()]
    caption = (
        "Images with several results, which depend on the other requests of a batch, against the median time of a "
        "request; every run is a point. At 0 %, each image has one result; further left is faster."
    )
    legend = tuple(enumerate(cases))
    data = runs[["case", "run", "repeat", "seconds", "several", "images"]]
    return [figure_of("inference", "Bits against speed", _plot(runs, cases), caption, 3.1, legend, data=data)]


def _plot(runs: pd.DataFrame, cases: list[str]) -> Callable:
    def plot(axes) -> None:
        for i, case in enumerate(cases):
            own = runs[(runs["case"] == case).to_numpy()]
            axes.plot(own["seconds"], 100 * own["several"] / own["images"], linestyle="none", **svg.series(i))
        axes.set_xscale("log")
        axes.set(
            xlabel="median time of a request, s", ylabel="images with several results, %", ylim=(-5, 105)
        )
        plain_ticks(axes.xaxis)

    return plot
