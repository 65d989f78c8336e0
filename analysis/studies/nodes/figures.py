"""The link matrix of a run: bytes from node to node, and rates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from analysis.page import svg
from analysis.page.svg import Figure, figure_of
from analysis.studies.nodes.crossed import OverNodes, rates
from analysis.studies.nodes.words import size

NUMBERED = 6  # most nodes for numbers in every cell
LABELLED = 16  # most nodes for a name of each at the axes
DARKEST = 0.6  # opacity of the largest cell
CELL_IN = 0.62


def link_matrix(of: OverNodes, name: str, traffic: pd.DataFrame) -> list[Figure]:
    """The matrix of one run, none without known traffic between nodes; `traffic`: its rows of the table TRAFFIC."""
    if not of.crossed:
        return []
    rate, known = "", not np.isnan(rates(of)[0]).all()
    if known and len(of.nodes) <= NUMBERED:
        rate = " and, below, the highest rate of a region; a link is at least as fast"
    largest = traffic.loc[traffic["bytes"].idxmax()]
    caption = (
        f"Bytes from the ranks of a node (row) to another node (column){rate}. The darker, the more; the maximum is "
        f"{size(largest['bytes'])} from {largest['from']} to {largest['to']}."
    )
    height = 1.0 + CELL_IN * min(len(of.nodes), NUMBERED)
    title = f"Traffic between nodes: {of.run}"
    return [figure_of(name, title, _plot(of), caption, height, (), data=traffic)]


def _plot(of: OverNodes) -> Callable:
    pairs, (speed, _) = of.pairs, rates(of)
    between = pairs.copy()
    np.fill_diagonal(between, 0.0)
    count = len(of.nodes)

    def plot(axes) -> None:
        for i, j in zip(*np.nonzero(between), strict=True):
            depth = DARKEST * between[i, j] / between.max()
            axes.fill([j - 0.5, j + 0.5, j + 0.5, j - 0.5], [i - 0.5, i - 0.5, i + 0.5, i + 0.5],
                      color=svg.SERIES[0], alpha=depth, linewidth=0)  # fmt: skip
        if count <= NUMBERED:
            for i in range(count):
                for j in range(count):
                    axes.text(j, i, _cell(i, j, between, speed), ha="center", va="center", fontsize=8)
        shown = range(0, count, -(-count // LABELLED))
        axes.set_xticks(shown, [of.nodes[i] for i in shown])
        axes.set_yticks(shown, [of.nodes[i] for i in shown])
        axes.set(xlim=(-0.5, count - 0.5), ylim=(count - 0.5, -0.5), xlabel="to", ylabel="from")
        axes.grid(visible=False)

    return plot


def _cell(i: int, j: int, between: np.ndarray, speed: np.ndarray) -> str:
    if i == j:
        return ""
    if not between[i, j]:
        return "0"
    rate = "" if np.isnan(speed[i, j]) else f"\n{size(speed[i, j])}/s"
    return f"{size(between[i, j])}{rate}"
