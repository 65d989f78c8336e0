"""The figures of growth: spread and size of a difference by step, a line per run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pandas as pd

from analysis.page import svg
from analysis.page.axes import floor_of, log_axis
from analysis.page.groups import figure_of_groups, most_elements
from analysis.page.svg import Figure

POINTS = 6000  # most points of a figure: beyond, it shows every k-th step, but all runs
LINES = 100  # most lines of a figure as vectors: beyond, they are an image, which keeps the page small


def divergence_figures(growths: pd.DataFrame, groups: list[str], laws: pd.DataFrame) -> list[Figure]:
    """Fraction of differing blocks and largest relative difference against the step. `growths` from
    `runs.cell_growths`; each of its groups is a series, numbered as in `groups`. The fitted growth of `laws`
    (`runs.laws`) is drawn only over the steps of its growth phase."""
    figures = []
    differing = growths.groupby(["kind", "name"], sort=False)["differing"].transform("max") > 0
    growths = growths[differing]  # leaves out lines of zeros
    fingerprints = growths[growths["kind"] == "fingerprints"]
    for name in most_elements(fingerprints):
        caption = (
            f"Share of the blocks whose {name} differs in bits from the first run of the group, after each step. One "
            "line per run; 0 means equal."
        )
        same = _thinned(fingerprints[fingerprints["name"] == name])
        plot = _by_step(same, "fraction", "blocks that differ", groups)
        data = same[["group", "run", "repeat", "step", "name", "differing", "elements", "fraction"]]
        figures.append(
            figure_of_groups(
                "blocks", f"How far the difference in {name} has spread", plot, caption, data, groups
            )
        )
    values = growths[growths["kind"] == "values"]
    for name in most_elements(values):
        caption = (
            f"Largest relative difference of {name} from the first run of the group, after each step, on a "
            "logarithmic scale. One line per run; points at the bottom are equal to the last bit. A straight rise is "
            "exponential growth. On a plateau, new errors balance the damping, often at the tolerance of a solver; "
            "near 1, the states have nothing in common."
        )
        same = _thinned(values[(values["name"] == name) & np.isfinite(values["max_relative"])])
        if same.empty:  # NaN throughout
            continue
        fitted = laws[(laws["kind"] == "values") & (laws["name"] == name) & laws["rate"].notna()]
        if len(fitted):
            caption += " Dark straight lines: the fitted growth, over the steps of the growth phase."
        plot = _by_step(same, "max_relative", "largest relative difference", groups, fitted)
        data = same[["group", "run", "repeat", "step", "name", "elements", "max_relative", "max_ulp"]]
        figures.append(
            figure_of_groups(
                "growth", f"How large the difference in {name} has grown", plot, caption, data, groups
            )
        )
    return figures


def _by_step(
    frame: pd.DataFrame, column: str, label: str, groups: list[str], fitted: pd.DataFrame | None = None
) -> Callable:
    def plot(axes) -> None:
        log = column != "fraction"
        floor = floor_of(frame[column]) if log else 0.0
        many = len(frame[["group", "run", "repeat"]].drop_duplicates()) > LINES
        for group, x, y in _lines(frame, column, many):
            shown = np.where(y == 0, floor, y)
            look = svg.series(groups.index(group))
            line = np.where(y == 0, np.nan, y) if log else y
            axes.plot(x, line, color=look["color"], alpha=0.7, rasterized=many)
            axes.plot(x, shown, linestyle="none", alpha=0.8, rasterized=many, **look)
        for law in () if fitted is None else fitted.itertuples(index=False):
            ends = np.array([law.first, law.last], float)
            heights = law.start * np.exp(law.rate * ends)
            axes.plot(ends, heights, color=svg.INK, linewidth=2.0, zorder=3)
            axes.annotate(
                "fitted growth", (ends[0], heights[0]), (9, -4), textcoords="offset points", fontsize=9
            )
        axes.set_xlabel("step")
        axes.set_ylabel(label)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if log:
            log_axis(axes.yaxis, axes.set_yscale, floor)
        else:
            axes.set_ylim(-0.04, 1.04)

    return plot


def _lines(frame: pd.DataFrame, column: str, together: bool) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(group, steps, numbers) of each run; with `together`, of each group, with gaps between its runs."""
    if not together:
        for (group, _, _), same in frame.groupby(["group", "run", "repeat"], sort=False):
            yield group, same["step"].to_numpy(), same[column].to_numpy()
        return
    for group, own in frame.groupby("group", sort=False):
        new = np.flatnonzero((own[["run", "repeat"]] != own[["run", "repeat"]].shift()).any(axis=1))[1:]
        yield (
            group,
            np.insert(own["step"].to_numpy(np.float64), new, np.nan),
            np.insert(own[column].to_numpy(), new, np.nan),
        )


def _thinned(frame: pd.DataFrame) -> pd.DataFrame:
    """`frame` with every k-th step, so that it has about POINTS rows at most."""
    steps = frame["step"].unique()
    return frame[frame["step"].isin(steps[:: max(1, -(-len(frame) // POINTS))])]
