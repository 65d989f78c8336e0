"""The heat map of operations and changes."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from analysis.page import svg
from analysis.page.svg import Figure, figure_of
from analysis.studies.audits.certificates import CHANGES
from analysis.studies.audits.tables import Known

ROW_IN = 0.17
DIRECTIONS = ("forward", "backward")


def sensitivity_figures(known: Known) -> list[Figure]:
    """Operations with a difference against changes, forward and backward side by side; none without differences."""
    frame = known.sensitivity
    rows = frame[frame["differ"] > 0]["operation"].drop_duplicates().tolist()
    if not rows:
        return []
    shown = frame[frame["operation"].isin(rows)]
    quiet = frame["operation"].nunique() - len(rows)
    caption = (
        "Changes that alter the bits of an operation: the darker, the more of its cases. A dot: no case differed; "
        f"empty: the change does not apply. {quiet} more operations showed no difference by any change."
    )
    height = 1.1 + ROW_IN * len(rows)
    return [
        figure_of("operations", "Sensitivity of operations", _plot(shown, rows), caption, height, (), grid=(1, 2),
                  data=shown)
    ]  # fmt: skip


def _plot(frame: pd.DataFrame, rows: list[str]) -> Callable:
    def plot(axes) -> None:
        for direction, each in zip(DIRECTIONS, axes, strict=True):
            same = frame[frame["direction"] == direction]
            for row in same.itertuples(index=False):
                x, y = CHANGES.index(row.change), rows.index(row.operation)
                if row.differ:
                    each.fill([x - 0.5, x + 0.5, x + 0.5, x - 0.5], [y - 0.5, y - 0.5, y + 0.5, y + 0.5],
                              color=svg.SERIES[1], alpha=0.2 + 0.7 * row.differ / row.cases, linewidth=0)  # fmt: skip
                else:
                    each.plot(x, y, ".", color=svg.INK, markersize=1.5)
            each.set_xticks(range(len(CHANGES)), CHANGES, rotation=90, fontsize=8)
            each.set_yticks(
                range(len(rows)), rows if direction == DIRECTIONS[0] else [""] * len(rows), fontsize=7
            )
            each.set(xlim=(-0.5, len(CHANGES) - 0.5), ylim=(len(rows) - 0.5, -0.5))
            each.set_title(direction, fontsize=9)
            each.grid(visible=False)

    return plot
