"""Where two runs part, and how the difference grows.

Runs are compared by (step, name, block), never by rank, so that runs on different rank counts compare.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis import bits
from analysis.load.frames import Frames

Id = tuple[str, int]  # (run, repeat)
KEY = ["step", "name", "occurrence", "block"]
GROWTH = {"step": "int32", "kind": "str", "name": "str", "elements": "int64", "differing": "int64",
          "fraction": "float64", "max_relative": "float64", "max_ulp": "float64",
          "undefined": "int64"}  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A row of two runs whose bits differ: `occurrence` counts rows of equal step, name and block from 0;
    the ranks are those that recorded it; `differing` of `recorded` blocks of this step, name and occurrence
    differ. `a` and `b` are the numbers, NaN for fingerprints."""

    step: int
    name: str
    block: int
    occurrence: int
    rank_a: int
    rank_b: int
    seq: int
    differing: int
    recorded: int
    a: float = np.nan
    b: float = np.nan


@dataclass(frozen=True)
class Comparison:
    """Two (run, repeat), and the first row in which they differ: of fingerprints, of values, and of the
    orders in which contributions arrived.

    `values` are the differing values of the block and step of `fingerprint`, else of the whole at that step;
    `largest` is the value of a block with the largest relative difference in that step: where every block
    differs, since a global sum carried the difference everywhere within a step, it is nearest to the origin.
    `compared` rows of fingerprints and values were in both, `only_a` and `only_b` in one; `through` is the last
    step in both.
    """

    a: Id
    b: Id
    fingerprint: Point | None
    value: Point | None
    order: tuple[int, str, int, tuple[int, ...], tuple[int, ...]] | None
    values: tuple[Point, ...]
    largest: Point | None
    compared: int
    only_a: int
    only_b: int
    through: int

    @property
    def equal(self) -> bool:
        """Whether every fingerprint and value in both has the same bits."""
        return self.fingerprint is None and self.value is None

    @property
    def first(self) -> Point | None:
        """The earlier of `fingerprint` and `value`; the fingerprint where both are of one step."""
        points = [point for point in (self.fingerprint, self.value) if point is not None]
        return min(points, key=lambda point: point.step, default=None)

    @property
    def when(self) -> tuple[int, ...]:
        """Sorts comparisons that differ, the earliest divergence first."""
        return (self.first.step, self.first is self.value, self.first.seq, self.first.block)


class NothingInCommon(Exception):
    """Two runs recorded no row of the same step, name and block."""


def compare(frames: Frames, a: Id, b: Id) -> Comparison:
    """The first divergence of `b` from `a`: the smallest step, then the name that `a` recorded first in that
    step, then the lowest block. Raises NothingInCommon when there is no row to compare."""
    points, shared, lone, through = {}, 0, [0, 0], []
    for table in ("fingerprints", "values"):
        rows_a, rows_b, both_a, both_b = _aligned(frames, table, a, b)
        shared += len(both_a)
        lone[0] += len(rows_a) - len(both_a)
        lone[1] += len(rows_b) - len(both_b)
        if len(both_a):
            through.append(int(both_a["step"].max()))
        points[table] = _first(table, both_a, both_b)
    if not shared:
        raise NothingInCommon(
            f"{a[0]}:{a[1]} and {b[0]}:{b[1]} recorded nothing of the same step, name and block, so there is "
            "nothing to compare; give two runs of one problem that record fingerprints"
        )
    fingerprint = points["fingerprints"]
    return Comparison(
        a, b, fingerprint, points["values"], _first_order(frames, a, b), *_nearby(frames, a, b, fingerprint),
        shared, *lone, max(through),
    )  # fmt: skip


def growth(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """How `b` differs from `a` step by step; columns GROWTH, one row per (kind, step, name), names as
    recorded.

    `kind` is "fingerprints" (elements are blocks) or "values"; the maxima are over the defined differences of
    values, NaN for fingerprints, and `undefined` counts the others (analysis.bits).
    """
    pieces = []
    for table in ("fingerprints", "values"):
        _, _, left, right = _aligned(frames, table, a, b)
        if len(left):
            pieces.append(_by_step_and_name(table, left, right))
    frame = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=list(GROWTH))
    return frame.astype(GROWTH)


def _by_step_and_name(table: str, left: pd.DataFrame, right: pd.DataFrame) -> pd.DataFrame:
    """GROWTH of two frames with equal keys; rows of one step and name lie together in them."""
    step, name = _codes(left, "step"), _codes(left, "name")
    begin = np.flatnonzero(np.append(True, (step[1:] != step[:-1]) | (name[1:] != name[:-1])))
    elements = np.diff(begin, append=len(left))
    differing = np.add.reduceat(_differ(table, left, right), begin, dtype=np.int64)
    nothing = np.full(len(begin), np.nan)
    frame = pd.DataFrame(
        {
            "step": step[begin], "kind": table, "name": left["name"].to_numpy()[begin], "elements": elements,
            "differing": differing, "fraction": differing / elements, "max_relative": nothing,
            "max_ulp": nothing, "undefined": 0,
        }
    )  # fmt: skip
    if table == "values":
        x, y = left["value"].to_numpy(), right["value"].to_numpy()
        relative, ulp = bits.relative_difference(x, y), bits.ulp_distance(x, y)
        frame["max_relative"] = np.fmax.reduceat(relative, begin)  # fmax leaves NaN out where it can
        frame["max_ulp"] = np.fmax.reduceat(ulp, begin)
        frame["undefined"] = np.add.reduceat(np.isnan(relative) | np.isnan(ulp), begin, dtype=np.int64)
    seq = np.minimum.reduceat(left["seq"].to_numpy(), begin)
    return frame.iloc[np.lexsort((seq, step[begin]))]


def growths(frames: Frames, reference: Id, others: Iterable[Id]) -> pd.DataFrame:
    """`growth` of each of `others` from `reference`, with the columns `run` and `repeat` of the other."""
    pieces = [growth(frames, reference, b).assign(run=b[0], repeat=b[1]) for b in others]
    return (
        pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=[*GROWTH, "run", "repeat"])
    )


def _aligned(frames: Frames, table: str, a: Id, b: Id) -> tuple[pd.DataFrame, ...]:
    """All rows of `a` and of `b`, then those with a KEY in both, in one order."""
    left, right = frames.of(table, *a), frames.of(table, *b)
    if len(left) == len(right) and all(_codes(left, k).tobytes() == _codes(right, k).tobytes() for k in KEY):
        return left, right, left, right  # the usual case: frames are sorted, so that no join is needed
    keys = [
        pd.DataFrame({key: _codes(side, key) for key in KEY} | {f"row_{name}": np.arange(len(side))})
        for name, side in (("a", left), ("b", right))
    ]
    both = keys[0].merge(keys[1], on=KEY)
    return left, right, left.iloc[both["row_a"]], right.iloc[both["row_b"]]


def _codes(rows: pd.DataFrame, key: str) -> np.ndarray:
    column = rows[key]
    return (column.cat.codes if key == "name" else column).to_numpy(np.int32)


def _differ(table: str, left: pd.DataFrame, right: pd.DataFrame) -> np.ndarray:
    if table == "values":
        return bits.differ(left["value"].to_numpy(), right["value"].to_numpy())
    return np.any([left[word].to_numpy() != right[word].to_numpy() for word in ("hi", "lo")], axis=0)


def _first(table: str, left: pd.DataFrame, right: pd.DataFrame) -> Point | None:
    changed = _differ(table, left, right)
    if not changed.any():
        return None
    rows = np.flatnonzero(changed)
    where = left.iloc[rows]
    first = rows[np.lexsort((where["block"], where["seq"], where["step"]))[0]]
    return _point(table, left, right, int(first), changed)


def _point(table: str, left: pd.DataFrame, right: pd.DataFrame, i: int, changed: np.ndarray) -> Point:
    row, other = left.iloc[i], right.iloc[i]
    same = np.all([_codes(left, key) == _codes(left.iloc[[i]], key)[0] for key in KEY[:-1]], axis=0)
    numbers = (float(row["value"]), float(other["value"])) if table == "values" else ()
    return Point(
        int(row["step"]), str(row["name"]), int(row["block"]), int(row["occurrence"]),
        int(row["rank"]), int(other["rank"]), int(row["seq"]),
        int(changed[same].sum()), int(same.sum()), *numbers,
    )  # fmt: skip


def _nearby(frames: Frames, a: Id, b: Id, at: Point | None) -> tuple[tuple[Point, ...], Point | None]:
    """`values` and `largest` of Comparison."""
    _, _, left, right = _aligned(frames, "values", a, b)
    changed = _differ("values", left, right)
    block = left["block"].to_numpy()
    now = changed & (left["step"].to_numpy() == at.step) if at else np.zeros(len(left), bool)
    if not now.any():
        return (), None
    here = np.flatnonzero(now & (block == at.block))
    if not len(here):
        here = np.flatnonzero(now & (block == -1))
    by_time = here[np.argsort(left["seq"].to_numpy()[here], kind="stable")]
    values = tuple(_point("values", left, right, int(i), changed) for i in by_time)
    inside = np.flatnonzero(now & (block >= 0))
    if not len(inside):
        return values, None
    size = bits.relative_difference(left["value"].to_numpy()[inside], right["value"].to_numpy()[inside])
    # A NaN against a number has no size, but nothing is further away.
    most = inside[np.argmax(np.where(np.isnan(size), np.inf, size))]
    return values, _point("values", left, right, int(most), changed)


def _first_order(
    frames: Frames, a: Id, b: Id
) -> tuple[int, str, int, tuple[int, ...], tuple[int, ...]] | None:
    """(step, reducer, call in this step from 0, order in a, order in b) of the first other order of arrival;
    None where there is none, or where the rank counts differ and orders cannot be compared."""
    key = ["step", "name", "occurrence"]
    left, right = (frames.of("order", *run).reset_index(drop=True) for run in (a, b))
    both = left.reset_index().merge(right, on=key, suffixes=("", "_b"))
    both = both[both["ranks"].str.len() == both["ranks_b"].str.len()].sort_values("index")
    changed = both[both["ranks"] != both["ranks_b"]]
    if changed.empty:
        return None
    row = changed.iloc[changed["step"].to_numpy().argmin()]
    orders = (tuple(np.frombuffer(row[column], "<u2").tolist()) for column in ("ranks", "ranks_b"))
    return int(row["step"]), str(row["name"]), int(row["occurrence"]), *orders
