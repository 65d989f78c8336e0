"""Reads the sizes of arrays that `rounding` judges: of a record in both runs, and of contributions to a sum."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.divergence.points import Point
from analysis.divergence.rounding import UNITS, Given, Size, Sum
from analysis.load.frames import Frames
from analysis.runs import Id
from miniapps.trace.records import ADDED

BY_RANK = re.compile(r" by rank \d+ of \d+$")
P = ("p0", "p1", "p2", "p3")


def pair(frames: Frames, a: Id, b: Id, at: Point, table: str) -> tuple[Size | None, Size | None]:
    """The sizes of the record `at` in both runs; None for a run that recorded no sizes."""
    sides: list[Size | None] = []
    for run, step in zip((a, b), at.steps, strict=True):
        if table == "values":
            x = at.a if run == a else at.b
            sides.append(Size("float64", 1, abs(x), abs(x), (x, 0.0, 0.0, 0.0)))
            continue
        rows = _rows(frames, "sizes", run, at.name, step, at)
        rows = rows[rows["block"] == at.block]
        sides.append(size_of(rows.iloc[0]) if len(rows) else None)
    return sides[0], sides[1]


def farthest(frames: Frames, a: Id, b: Id, at: Point) -> tuple[Size | None, Size | None]:
    """The sizes in both runs of the block of the record `at` that differs most relative to its size; None: no block."""
    one, other = (
        _rows(frames, "sizes", run, at.name, step, at) for run, step in zip((a, b), at.steps, strict=True)
    )
    both = one.merge(other, on="block", suffixes=("", "_b"))
    if both.empty:
        return None, None
    with np.errstate(all="ignore"):
        far = np.max([np.abs(both[p] - both[f"{p}_b"]) for p in P], axis=0)
        relative = far / np.maximum(both["l1"], both["l1_b"]).to_numpy()
    relative[far == 0] = 0
    row = both.iloc[int(np.argmax(np.nan_to_num(relative, nan=np.inf)))]
    columns = ("dtype", "count", "sample", "l1", "largest", *P)
    sides = (row, {key: row[f"{key}_b"] for key in columns})
    return size_of(sides[0]), size_of(sides[1])


def given(frames: Frames, a: Id, b: Id, total: Point, name: str) -> Given:
    """The contributions to the reduction `name` whose total is the record `total`."""
    base, sets, sizes = BY_RANK.sub("", name), [], []
    for run, step in zip((a, b), total.steps, strict=True):
        prints, own = [], []
        for added in frames.recorded("fingerprints", *run):
            if added.startswith(ADDED) and BY_RANK.sub("", added.removeprefix(ADDED)) == base:
                prints.append(_rows(frames, "fingerprints", run, added, step, total))
                own.append(_rows(frames, "sizes", run, added, step, total))
        printed = pd.concat(prints) if prints else pd.DataFrame(columns=["hi", "lo"])
        sets.append(sorted(zip(printed["hi"].tolist(), printed["lo"].tolist(), strict=True)))
        sizes.append(tuple(size_of(row) for each in own for _, row in each.iterrows()))
    equal = sets[0] == sets[1] if all(sets) else None
    whole = [len(own) == len(printed) for own, printed in zip(sizes, sets, strict=True)]
    return Given((sizes[0], sizes[1]) if all(whole) else ((), ()), equal)


def sum_of(a: pd.Series, b: pd.Series, name: str, dtype: str = "") -> Sum:
    """The reduction `name` as `a` and `b`, rows of `Frames.runs`, state it.

    If the guarantees differ, the Sum has the guarantee `none`; if operations or types differ, these are empty."""
    stated = [json.loads(run["reductions"]).get(BY_RANK.sub("", name), {}) for run in (a, b)]
    if any(each.get("wire", "as is") != "as is" for each in stated):
        stated = [each | {"operation": ""} for each in stated]  # a wire rounds the numbers by another unit
    operation, kind = (
        str(stated[0].get(key, "")) if stated[0].get(key) == stated[1].get(key) else ""
        for key in ("operation", "dtype")
    )
    levels = [str(each.get("guarantee", "none")) for each in stated]
    level = levels[0] if levels[0] == levels[1] else "none"
    ranks = [int(each.get("ranks") or run["size"]) for each, run in zip(stated, (a, b), strict=True)]
    return Sum(operation, kind or dtype, level, (ranks[0], ranks[1]))


def largest(frames: Frames, *runs: Id) -> float:
    """The largest floating-point number that these runs recorded with finite sizes, at least 1; infinite if sizes are
    of samples, which may lack it."""
    most = 1.0
    for run in runs:
        rows = frames.of("sizes", *run)
        if (rows["sample"] > 1).any():
            return math.inf
        rows = rows[rows["dtype"].isin(list(UNITS)).to_numpy()]
        numbers = rows["largest"].to_numpy()
        most = max(most, float(numbers[numbers < math.inf].max(initial=0.0)))
    return most


def size_of(row: Mapping[str, Any] | pd.Series) -> Size:
    """The Size of a row of the table `sizes`."""
    p0, p1, p2, p3 = (float(row[key]) for key in P)
    l1, largest = abs(float(row["l1"])), abs(float(row["largest"]))
    return Size(str(row["dtype"]), int(row["count"]), l1, largest, (p0, p1, p2, p3), int(row["sample"]))


def _rows(frames: Frames, table: str, run: Id, name: str, step: int, at: Point) -> pd.DataFrame:
    rows = frames.segment(table, *run, name, step)
    return rows[rows["occurrence"] == at.occurrence]
