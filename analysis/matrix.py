"""The verdict at a glance: how many results each group has at each rank count, and over all of them."""

from __future__ import annotations

import pandas as pd

from analysis.divergence.compare import NothingInCommon, compare
from analysis.groups import SPANS_LAYOUTS, grouped
from analysis.load.frames import Frames
from analysis.variability import bound, ids, outcomes
from analysis.verdict import HOLDS, SAME, Group, verdict_of

ALL = 0  # stands for all rank counts together in the column `size`
MATRIX = {"group": "str", "guarantee": "str", "size": "int64", "runs": "int64", "distinct": "int64",
          "verdict": "str", "on_the_way": "bool", "bound": "float64"}  # fmt: skip


def matrix(frames: Frames, groups: list[Group]) -> pd.DataFrame:
    """One row per group and rank count, and one with `size` ALL; columns MATRIX. Complete runs only.

    `distinct` results of `runs` runs (0 where nothing was recorded to compare); `on_the_way`: they differ before the
    end, which `distinct` does not see. `verdict` is one of verdict.MEANING, or empty where rank counts are taken
    together and no promise spans them. `bound`: below it lies the probability of a difference per run, where none was
    seen (variability.bound), NaN elsewhere.
    """
    runs = grouped(frames.runs)
    runs = runs[runs["complete"]]
    rows = []
    for group in groups:
        spans = group.guarantee in SPANS_LAYOUTS
        members = runs[runs["group"] == group.label]
        counted = _by_size(frames, members, group) if spans else _cells(group)
        for size, n, distinct, way in counted:
            rows.append(
                (group, size, n, distinct, verdict_of(group.guarantee, n, distinct, distinct > 1 or way), way)
            )
        way = any(cell.first for cell in group.cells)
        verdict = group.verdict if spans else ""
        rows.append((group, ALL, group.runs, group.distinct, verdict, spans and way))
    return pd.DataFrame(
        [
            (group.label, group.guarantee, size, n, distinct, verdict, way,
             bound(n) if verdict in (HOLDS, SAME) else float("nan"))
            for group, size, n, distinct, verdict, way in rows
        ],
        columns=list(MATRIX),
    ).astype(MATRIX)  # fmt: skip


def _cells(group: Group) -> list[tuple[int, int, int, bool]]:
    """(size, runs, distinct, whether they differ on the way) where every rank count is judged apart."""
    return [(cell.sizes[0], cell.runs, cell.distinct, cell.first is not None) for cell in group.cells]


def _by_size(frames: Frames, members: pd.DataFrame, group: Group) -> list[tuple[int, int, int, bool]]:
    """The same of a group that is judged as a whole."""
    if members.empty:
        return []
    results = outcomes(frames, members) or [""] * len(members)
    found = []
    for size, same in members.assign(result=results).groupby("size"):
        distinct = len(set(same["result"]) - {""})
        way = any(cell.first for cell in group.cells) and _part(frames, same)
        found.append((int(size), len(same), distinct, way))
    return found


def _part(frames: Frames, same: pd.DataFrame) -> bool:
    """Whether any bit of these runs differs at any time."""
    first, *others = ids(same)
    for other in others:
        try:
            if not compare(frames, first, other).equal:
                return True
        except NothingInCommon:
            continue
    return False
