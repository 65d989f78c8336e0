"""Where two runs part, and how the difference grows.

Runs are compared by (step, name, block), never by rank, so that runs on different rank counts compare. They are equal
only where both recorded all that they must (`analysis.divergence.recorded`): a run that lost rows is not comparable.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.recorded import LAST, TELLING, Common, common
from analysis.load.frames import Frames
from analysis.load.keys import groups
from analysis.load.store import Leaves
from analysis.load.tree import HASHES
from kernels import bits
from miniapps.trace.records import is_state

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
class Lone:
    """A row that `run` recorded and the other run did not, although it must have."""

    run: Id
    step: int
    name: str
    block: int
    occurrence: int
    seq: int


@dataclass(frozen=True)
class Comparison:
    """Two (run, repeat), and the first row in which they differ: of fingerprints, of values, and of the
    orders in which contributions arrived.

    `values` are the differing values of the block and step of `fingerprint`, else of the whole at that step;
    `largest` is the value of a block with the largest relative difference in that step: where every block
    differs, since a global sum carried the difference everywhere within a step, it is nearest to the origin.
    `compared` rows of fingerprints and values were in both, `only_a` and `only_b` in one; `through` is the last
    step in both, -1 where there is none. `lacks_a` and `lacks_b` rows must be in one and are only in the other, `lone`
    is the first of them; `recordings` says in what methods and recordings differ.
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
    lacks_a: int = 0
    lacks_b: int = 0
    lone: Lone | None = None
    recordings: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether a fingerprint or value in both has other bits."""
        return self.fingerprint is not None or self.value is not None

    @property
    def comparable(self) -> bool:
        """Whether something can be said: a difference is one whatever else is missing."""
        return self.differs or self.lone is None

    @property
    def equal(self) -> bool:
        """Whether both have all rows that they must, and every fingerprint and value in both has the same bits."""
        return self.comparable and not self.differs

    @property
    def first(self) -> Point | None:
        """The earlier of `fingerprint` and `value`; the fingerprint where both are of one step."""
        points = [point for point in (self.fingerprint, self.value) if point is not None]
        return min(points, key=lambda point: point.step, default=None)

    @property
    def part(self) -> Point:
        """`first`, where the two part; raises ValueError for two that differ nowhere."""
        if self.first is None:
            raise ValueError(f"{self.a} and {self.b} differ nowhere, so that they part nowhere")
        return self.first

    @property
    def when(self) -> tuple[int, ...]:
        """Sorts comparisons that differ, the earliest divergence first."""
        return (self.part.step, self.part is self.value, self.part.seq, self.part.block)


class NothingInCommon(Exception):
    """Two runs recorded no row of the same step, name and block."""


def compare(frames: Frames, a: Id, b: Id, common: Common | None = None) -> Comparison:
    """The first divergence of `b` from `a`: the smallest step, then the name that `a` recorded first in that
    step, then the lowest block. Hashes of many rows are compared first, and rows are read only where these differ
    (`analysis.load.tree`). `common` is what `common_of` returns, where the caller has it. Raises NothingInCommon when
    there is no row to compare, and none is missing."""
    points: dict[str, Point | None] = {}
    shared, only, lacks = 0, [0, 0], [0, 0]
    lone: list[Lone] = []
    through: list[int] = []
    common = common or common_of(frames, a, b)
    for table in ("fingerprints", "values"):
        both = _Shared(frames, table, a, b, common)
        shared += both.rows
        only[0] += int(both.left.rows.sum()) - both.rows
        only[1] += int(both.right.rows.sum()) - both.rows
        if both.rows:
            through.append(int(both.left.step[both.in_left].max()))
        points[table] = _first(both)
        missing = both.missing()
        for side, (count, _) in enumerate(missing):
            lacks[1 - side] += count
        firsts = [first for _, first in missing if first]
        lone += sorted(firsts, key=lambda row: (row.step, row.seq, row.block))[:1]
    if not shared and not lone:
        raise NothingInCommon(
            f"{a[0]}:{a[1]} and {b[0]}:{b[1]} recorded nothing of the same step, name and block, so there is "
            "nothing to compare; give two runs of one problem that record fingerprints"
        )
    fingerprint = points["fingerprints"]
    values, largest = _nearby(frames, a, b, fingerprint, common)
    return Comparison(
        a, b, fingerprint, points["values"], _first_order(frames, a, b), values, largest,
        compared=shared, only_a=only[0], only_b=only[1], through=max(through, default=-1),
        lacks_a=lacks[0], lacks_b=lacks[1], lone=min(lone, key=lambda row: row.step, default=None),
        recordings=common.differ,
    )  # fmt: skip


def against_first(frames: Frames, runs: Iterable[Id]) -> list[Comparison]:
    """Each of `runs` but the first against the first; without those that have nothing in common with it."""
    first, *others = runs
    rows = {(row["run"], row["repeat"]): row for row in frames.runs[list(TELLING)].to_dict("records")}
    comparisons = []
    for other in others:
        try:
            comparisons.append(compare(frames, first, other, common(rows[first], rows[other])))
        except NothingInCommon:
            continue
    return comparisons


def common_of(frames: Frames, a: Id, b: Id) -> Common:
    """What two (run, repeat) must both have recorded."""
    runs = frames.runs
    return common(
        *(runs[(runs["run"] == run) & (runs["repeat"] == repeat)].iloc[0] for run, repeat in (a, b))
    )


def growth(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """How `b` differs from `a` step by step: `by_step` of states and results."""
    frame = by_step(frames, a, b)
    return frame[[is_state(name) for name in frame["name"]]].astype(GROWTH)


def by_step(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """How `b` differs from `a`; columns GROWTH, a row per (kind, step, name) of all that was recorded.

    `kind` is "fingerprints" (elements are blocks) or "values"; the maxima are over the defined differences of
    values, NaN for fingerprints, and `undefined` counts the others (kernels.bits).
    """
    pieces = []
    common = common_of(frames, a, b)
    for table in ("fingerprints", "values"):
        both = _Shared(frames, table, a, b, common)
        if both.rows:
            pieces.append(_by_step_and_name(both))
    frame = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=list(GROWTH))
    return frame.astype(GROWTH)


def _by_step_and_name(both: _Shared) -> pd.DataFrame:
    """GROWTH of one table."""
    tree, equal = both.left, both.in_left[~both.unequal]
    left, right = both.aligned(both.unequal)
    step = np.concatenate([tree.step[equal], left["step"].to_numpy()])
    name = np.concatenate([tree.name[equal], left["name"].cat.codes.to_numpy()])
    order, begin = groups(step, name)
    first = order[begin]

    def over(whole: np.ndarray, rows: np.ndarray, ufunc=np.add) -> np.ndarray:
        return ufunc.reduceat(np.concatenate([whole, rows])[order], begin)

    nothing, none = np.zeros(len(equal), np.int64), np.zeros(len(equal))
    elements = over(tree.rows[equal], np.ones(len(left), np.int64))
    differing = over(nothing, _differ(both.table, left, right).astype(np.int64))
    frame = pd.DataFrame(
        {
            "step": step[first], "kind": both.table, "name": np.array(both.frames.names, object)[name[first]],
            "elements": elements, "differing": differing, "fraction": differing / elements,
            "max_relative": np.nan, "max_ulp": np.nan, "undefined": 0,
        }
    )  # fmt: skip
    if both.table == "values":
        x, y = left["value"].to_numpy(), right["value"].to_numpy()
        relative, ulp = bits.relative_difference(x, y), bits.ulp_distance(x, y)
        frame["max_relative"] = over(none, relative, np.fmax)  # fmax leaves NaN out where it can
        frame["max_ulp"] = over(none, ulp, np.fmax)
        frame["undefined"] = over(nothing, (np.isnan(relative) | np.isnan(ulp)).astype(np.int64))
    seq = over(tree.seq[equal], left["seq"].to_numpy(), np.minimum)
    return frame.iloc[np.lexsort((seq, step[first]))]


def growths(frames: Frames, reference: Id, others: Iterable[Id]) -> pd.DataFrame:
    """`growth` of each of `others` from `reference`, with the columns `run` and `repeat` of the other."""
    pieces = [growth(frames, reference, b).assign(run=b[0], repeat=b[1]) for b in others]
    return (
        pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=[*GROWTH, "run", "repeat"])
    )


class _Shared:
    """What two (run, repeat) both recorded in one table, by the leaves of their hash trees, as far as it is compared.

    `in_left`, `in_right`: places of the leaves with equal (step, name, occurrence, leaf) in both; `unequal`: whether
    they differ in blocks or bits; `rows`: how many rows have an equal in the other, by step, name, occurrence and
    block.
    """

    def __init__(self, frames: Frames, table: str, a: Id, b: Id, common: Common):
        self.frames, self.table, self.a, self.b, self.common = frames, table, a, b, common
        self.left, self.right = frames.leaves(table, *a), frames.leaves(table, *b)
        self.in_left, self.in_right = _joined(self.left, self.right)
        self.begin = _both_begun(frames, a, b) if common.restarted else 0
        kept = self._of(self.left, lambda name: not common.dropped(table, name))[self.in_left]
        if not kept.all():
            self.in_left, self.in_right = self.in_left[kept], self.in_right[kept]
        pairs = [
            (getattr(self.left, key)[self.in_left], getattr(self.right, key)[self.in_right]) for key in HASHES
        ]
        self.unequal = np.any([one != other for one, other in pairs], axis=0)
        other_blocks = pairs[0][0] != pairs[0][1]
        self.rows = int(self.left.rows[self.in_left[~other_blocks]].sum())
        if other_blocks.any():
            self.rows += len(self.aligned(other_blocks)[0])
        self.other_blocks = other_blocks

    def missing(self) -> list[tuple[int, Lone | None]]:
        """For each run, how many rows it has that the other must have and lacks, and the first of them."""
        missing_rows = []
        sides = ((self.a, self.left, self.in_left), (self.b, self.right, self.in_right))
        for (run, tree, joined), (_, other, matched) in zip(sides, sides[::-1], strict=True):
            must = self._of(tree, lambda name: not self.common.may_lack(self.table, name))
            must &= tree.step <= self.common.until
            alone = must.copy()
            alone[joined] = False
            count, first = int(tree.rows[alone].sum()), []
            if count:
                places = np.flatnonzero(alone)
                first += [
                    self._rows(run, tree, places[[np.lexsort((tree.seq[places], tree.step[places]))[0]]])
                ]
            part = self.other_blocks & must[joined]
            if part.any():
                own = self._rows(run, tree, joined[part])
                theirs = self._rows(self.b if run is self.a else self.a, other, matched[part])
                keys = pd.MultiIndex.from_frame(own[KEY]).isin(pd.MultiIndex.from_frame(theirs[KEY]))
                count += int((~keys).sum())
                first += [own[~keys]] if not keys.all() else []
            missing_rows.append((count, _lone(run, pd.concat(first)) if first else None))
        return missing_rows

    def _of(self, tree: Leaves, wanted: Callable[[str], bool]) -> np.ndarray:
        """Which leaves of the compared steps have a `wanted` name: bool."""
        known = np.zeros(len(self.frames.names), bool)
        for code in np.unique(tree.name).tolist():
            known[code] = wanted(self.frames.names[code])
        return known[tree.name] & (tree.step >= self.begin)

    def _rows(self, run: Id, tree: Leaves, places: np.ndarray) -> pd.DataFrame:
        """The rows of the leaves in `places`, names as text."""
        rows = self.frames.at(self.table, run[0], tree.places(np.sort(places)))
        return rows.assign(name=rows["name"].astype("str"))

    def aligned(self, chosen: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The rows below the `chosen` (bool) of the shared leaves that are in both runs, in one order."""
        left = self.frames.at(self.table, self.a[0], self.left.places(self.in_left[chosen]))
        right = self.frames.at(self.table, self.b[0], self.right.places(self.in_right[chosen]))
        if len(left) == len(right) and all(
            _codes(left, key).tobytes() == _codes(right, key).tobytes() for key in KEY
        ):
            return left, right
        keys = [
            pd.DataFrame({key: _codes(side, key) for key in KEY} | {f"row_{name}": np.arange(len(side))})
            for name, side in (("a", left), ("b", right))
        ]
        both = keys[0].merge(keys[1], on=KEY)
        return left.iloc[both["row_a"]], right.iloc[both["row_b"]]


def _both_begun(frames: Frames, a: Id, b: Id) -> int:
    """The first step in which both runs recorded a state."""
    states = np.array([is_state(name) for name in frames.names], bool)
    first = []
    for run in (a, b):
        trees = [frames.leaves(table, *run) for table in ("fingerprints", "values")]
        first.append(
            min((int(tree.step[states[tree.name]].min(initial=LAST)) for tree in trees), default=LAST)
        )
    return max(first)


def _lone(run: Id, rows: pd.DataFrame) -> Lone:
    """The first of `rows`."""
    at = rows.sort_values(["step", "seq", "block"]).iloc[0]
    return Lone(
        run, int(at["step"]), str(at["name"]), int(at["block"]), int(at["occurrence"]), int(at["seq"])
    )


def _joined(left: Leaves, right: Leaves) -> tuple[np.ndarray, np.ndarray]:
    """Places of the leaves that are in both."""
    keys = ("step", "name", "occurrence", "leaf")
    if all(np.array_equal(getattr(left, key), getattr(right, key)) for key in keys):
        same = np.arange(len(left.step))
        return same, same  # the usual case: no join is needed
    frames = [
        pd.DataFrame({key: getattr(side, key) for key in keys} | {f"place_{name}": np.arange(len(side.step))})
        for name, side in (("a", left), ("b", right))
    ]
    both = frames[0].merge(frames[1], on=list(keys)).sort_values("place_a")
    return both["place_a"].to_numpy(), both["place_b"].to_numpy()


def _codes(rows: pd.DataFrame, key: str) -> np.ndarray:
    column = rows[key]
    return (column.cat.codes if key == "name" else column).to_numpy(np.int32)


def _differ(table: str, left: pd.DataFrame, right: pd.DataFrame) -> np.ndarray:
    if table == "values":
        return bits.differ(left["value"].to_numpy(), right["value"].to_numpy())
    return np.any([left[word].to_numpy() != right[word].to_numpy() for word in ("hi", "lo")], axis=0)


def _first(both: _Shared) -> Point | None:
    """The first row that differs. Leaves whose blocks are not the same may hold none, so that they are tried in
    turn."""
    unequal = np.flatnonzero(both.unequal)
    if not len(unequal):
        return None
    tree, at = both.left, both.in_left
    step, seq = tree.step[at[unequal]], tree.seq[at[unequal]]
    order, begin = groups(step, seq)
    for i, j in itertools.pairwise([*begin.tolist(), len(order)]):
        here = unequal[order[i:j]]
        chosen = np.zeros(len(at), bool)
        chosen[here] = True
        left, right = both.aligned(chosen)
        changed = _differ(both.table, left, right)
        if not changed.any():
            continue
        rows = np.flatnonzero(changed)
        row = int(rows[np.argmin(left["block"].to_numpy()[rows])])
        segment = (tree.step[at] == step[order[i]]) & (tree.seq[at] == seq[order[i]]) & ~both.unequal
        return _point(both.table, left, right, row, changed, int(tree.rows[at[segment]].sum()))
    return None


def _point(
    table: str, left: pd.DataFrame, right: pd.DataFrame, i: int, changed: np.ndarray, equal: int = 0
) -> Point:
    """Row `i` of aligned rows; `equal` more rows of its step, name and occurrence are equal in both runs."""
    row, other = left.iloc[i], right.iloc[i]
    same = np.all([_codes(left, key) == _codes(left.iloc[[i]], key)[0] for key in KEY[:-1]], axis=0)
    numbers = (float(row["value"]), float(other["value"])) if table == "values" else ()
    return Point(
        int(row["step"]), str(row["name"]), int(row["block"]), int(row["occurrence"]),
        int(row["rank"]), int(other["rank"]), int(row["seq"]),
        int(changed[same].sum()), int(same.sum()) + equal, *numbers,
    )  # fmt: skip


def _nearby(
    frames: Frames, a: Id, b: Id, at: Point | None, common: Common
) -> tuple[tuple[Point, ...], Point | None]:
    """`values` and `largest` of Comparison."""
    if at is None:
        return (), None
    both = _Shared(frames, "values", a, b, common)
    left, right = both.aligned(both.unequal & (both.left.step[both.in_left] == at.step))
    changed = _differ("values", left, right)
    if not changed.any():
        return (), None
    block = left["block"].to_numpy()
    here = np.flatnonzero(changed & (block == at.block))
    if not len(here):
        here = np.flatnonzero(changed & (block == -1))
    by_time = here[np.argsort(left["seq"].to_numpy()[here], kind="stable")]
    values = tuple(_point("values", left, right, int(i), changed) for i in by_time)
    inside = np.flatnonzero(changed & (block >= 0))
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
    in_a, in_b = (tuple(np.frombuffer(row[column], "<u2").tolist()) for column in ("ranks", "ranks_b"))
    return int(row["step"]), str(row["name"]), int(row["occurrence"]), in_a, in_b
