"""The figures of the shares of variance components."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.page import svg
from analysis.page.svg import Figure, figure_of
from analysis.studies.components.estimates import ALGORITHM, RUN_TO_RUN
from analysis.studies.components.observations import PLURAL
from analysis.studies.components.tables import problems

DRAWN = 4  # most problems with figures; the tables have all
OUTCOMES = 12  # of one figure
ROW_IN = 0.17


def component_figures(frame: pd.DataFrame) -> list[Figure]:
    """Shares with their intervals, by outcome; run-to-run and algorithm have separate figures."""
    figures = []
    several = frame[["app", "problem"]].drop_duplicates().shape[0] > 1
    for k, (where, problem) in enumerate(problems(frame)):
        if k == DRAWN:
            break
        for kind, whole in ((RUN_TO_RUN, "the variance from run to run"), (ALGORITHM, "all variance")):
            own = problem[(problem["kind"] == kind) & problem["share"].notna()]
            if own.empty:
                continue
            outcomes = own["outcome"].drop_duplicates()
            own = own[own["outcome"].isin(outcomes.iloc[:OUTCOMES])]
            factors = list(dict.fromkeys(own["factor"]))
            caption = (
                f"Share of {whole}: dots are estimates, lines 95 % intervals by cluster bootstrap. Without a line, an "
                "interval had too few units."
                + (
                    f" The first {OUTCOMES} of {len(outcomes):,} outcomes."
                    if len(outcomes) > OUTCOMES
                    else ""
                )
            )
            legend = tuple((i, PLURAL.get(factor, factor)) for i, factor in enumerate(factors))
            title = f"Where the variance is, {kind}" + (f": {where}" if several else "")
            height = 0.7 + own["outcome"].nunique() * (0.3 + ROW_IN * len(factors))
            name, plot = f"components-{kind}-{k}", _dots(own, factors, whole)
            data = own[["app", "problem", "outcome", "factor", "share", "share_low", "share_high"]]
            figures.append(figure_of(name, title, plot, caption, height, legend, data=data))
    return figures


def _dots(own: pd.DataFrame, factors: list[str], whole: str) -> Callable:
    def plot(axes) -> None:
        y = 0.0
        for outcome, same in own.groupby("outcome", sort=False):
            axes.annotate(
                outcome, (0.0, y), xycoords=("axes fraction", "data"), va="center", fontsize=9
            ).set_in_layout(False)
            for row in same.itertuples(index=False):
                y += ROW_IN
                look = svg.series(factors.index(row.factor))
                axes.hlines(y, 100 * row.share_low, 100 * row.share_high, color=look["color"], linewidth=1.6)
                axes.plot([100 * row.share], [y], linestyle="none", clip_on=False, **look)
            y += 0.3
        axes.set_ylim(y, -0.2)
        axes.set_xlim(0, 100)
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(f"share of {whole}, %")

    return plot
