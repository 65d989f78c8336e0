"""Figures whose series are the groups of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from analysis.page.svg import Figure, figure_of

ROW_IN = 0.46  # height of a row that has its label above the points


def figure_of_groups(
    name: str,
    title: str,
    plot: Callable,
    caption: str,
    data: pd.DataFrame,
    groups: Sequence[str],
    rows: float = 0,
) -> Figure:
    """A figure of the groups in `data`, which are its points, as high as `rows` rows need."""
    present = tuple((i, group) for i, group in enumerate(groups) if group in set(data["group"]))
    height = 0.75 + rows * ROW_IN if rows else 3.1
    return figure_of(name, title, plot, caption, height, present, data=data)


def most_elements(frame: pd.DataFrame) -> list[str]:
    """The name with the most elements, the first recorded of these, as a list; empty for an empty frame."""
    most = frame.groupby("name", sort=False)["elements"].max()
    return [most.idxmax()] if len(most) else []
