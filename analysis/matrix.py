"""Tabulates the verdict: the number of results of each group at each rank count, and over all rank counts."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from analysis.groups import SPANS_LAYOUTS, grouped
from analysis.load.frames import Frames
from analysis.verdict import HOLDS, SAME, Cell, Group, cell_of
from kernels.bits import bound

ALL = 0  # stands for all rank counts together in the column `size`
MATRIX = {"group": "str", "guarantee": "str", "size": "int64", "runs": "int64", "compared": "int64",
          "distinct": "int64", "verdict": "str", "on_the_way": "bool", "bound": "float64"}  # fmt: skip


def matrix(frames: Frames, groups: list[Group]) -> pd.DataFrame:
    """One row per group and rank count, and one with `size` ALL; columns MATRIX. Complete runs only.

    `compared` of `runs` runs were compared with others of the cell; they have `distinct` results (0: none were
    recorded). `on_the_way`: True if they differ before the end, which `distinct` does not show. `verdict` is a key of
    verdict.MEANING; empty for ALL if no guarantee spans rank counts. `bound`: if no difference was seen, the
    probability of a difference per run is below it (kernels.bits.bound); else NaN.
    """
    runs = grouped(frames.runs)
    runs = runs[runs["complete"]]
    rows = []
    for group in groups:
        spans = group.guarantee in SPANS_LAYOUTS
        members = runs[runs["group"] == group.label]
        for cell in _by_size(frames, members, group) if spans else group.cells:
            way = cell.first is not None
            rows.append(
                (group, cell.sizes[0], cell.runs, cell.over.compared, cell.distinct, cell.verdict, way)
            )
        way = any(cell.first for cell in group.cells)
        verdict = group.bits if spans else ""
        compared = group.over.compared
        rows.append((group, ALL, group.runs, compared, group.distinct, verdict, spans and way))
    return pd.DataFrame(
        [
            (group.label, group.guarantee, size, n, compared, distinct, verdict, way,
             bound(compared) if verdict in (HOLDS, SAME) and compared > 1 else float("nan"))
            for group, size, n, compared, distinct, verdict, way in rows
        ],
        columns=list(MATRIX),
    ).astype(MATRIX)  # fmt: skip


def _by_size(frames: Frames, members: pd.DataFrame, group: Group) -> list[Cell]:
    """The cells of a group that is judged as a whole, one for each rank count by itself."""
    if group.bits != HOLDS or group.over.compared < group.runs:
        return [cell_of(frames, group.label, same) for _, same in members.groupby("size")]
    distinct = min(group.cells[0].distinct, 1) if group.cells else 0  # the same for all rank counts
    return [
        Cell(
            group.label, group.guarantee, (int(size),), len(same), distinct, None,
            replace(group.over, runs=len(same), compared=len(same) * (len(same) > 1)),
        )
        for size, same in members.groupby("size")
    ]  # fmt: skip
