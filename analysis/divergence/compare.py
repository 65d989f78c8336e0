"""Where two runs part, and how the difference grows.

Runs are compared by (step, name, block), never by rank, so that runs on different rank counts compare. They are equal
only where both recorded all that they must (`analysis.divergence.recorded`): a run that lost rows is not comparable.
The final states of `result.json` are compared as well, since the last step may have left no record.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.recorded import LAST, OF_A_RANK, TELLING, Common, common, recording
from analysis.load.frames import Frames
from analysis.load.keys import groups
from analysis.load.store import Leaves
from analysis.load.tree import HASHES
from kernels import bits
from miniapps.trace.records import ADDED, PASSING, SOURCE, TOTAL, is_state

Id = tuple[str, int]  # (run, repeat)
KEY = ["step", "name", "occurrence", "block"]
FINAL = "final state"  # the name of a point at which the hashes in result.json differ
KINDS = 8  # kinds of recordings of which every two are compared
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
    """Two (run, repeat), and the first row in which they differ: of fingerprints, of values, of the ranks whose
    messages receives from any source took (`messages`), and of the orders in which contributions arrived. `final` is
    the step after which the hashes of their final states differ, `ended` whether both have such a hash of one step.

    `values` are the differing values of the block and step of `fingerprint`, else of the whole at that step;
    `largest` is the value of a block with the largest relative difference in that step: where every block
    differs, since a global sum carried the difference everywhere within a step, it is nearest to the origin.
    `compared` rows of fingerprints and values were in both, `only_a` and `only_b` in one; `through` is the last
    step in both, -1 where there is none. `results` of the compared rows are of states and results, and not of what
    programs pass on; `left_out` are names of both that cannot be compared, since ranks added arrays of their own.
    `lacks_a` and `lacks_b` rows must be in one and are only in the other, `lone` is the first of them; `recordings`
    says in what methods and recordings differ.
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
    messages: Point | None = None
    results: int = 0
    ended: bool = False
    final: int | None = None
    left_out: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether a fingerprint, a value, the source of a message or the final state in both is another."""
        return self.first is not None

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
        """The earliest of `fingerprint`, `messages` and `value`; of one step in this order, but `messages` before what
        ranks got or gave to a sum, which these may have changed. Else the final state."""
        points = [point for point in (self.fingerprint, self.messages, self.value) if point is not None]
        first = min(points, key=lambda point: point.step, default=None)
        if first is not None and self.messages is not None and self.messages.step == first.step:
            return self.messages if first.name.startswith((ADDED, TOTAL)) else first
        if first is None and self.final is not None:
            return Point(self.final, FINAL, -1, 0, 0, 0, LAST, 1, 1)
        return first

    @property
    def part(self) -> Point:
        """`first`, where the two part; raises ValueError for two that differ nowhere."""
        if self.first is None:
            raise ValueError(f"{self.a} and {self.b} differ nowhere, so that they part nowhere")
        return self.first

    @property
    def when(self) -> tuple[int, ...]:
        """Sorts comparisons that differ, the earliest divergence first."""
        return (
            self.part.step,
            self.part.name == FINAL,
            self.part is self.value,
            self.part.seq,
            self.part.block,
        )


class NothingInCommon(Exception):
    """Two runs recorded no row of the same step, name and block."""


def compare(frames: Frames, a: Id, b: Id, common: Common | None = None) -> Comparison:
    """The first divergence of `b` from `a`: the smallest step, then the name that `a` recorded first in that
    step, then the lowest block. Hashes of many rows are compared first, and rows are read only where these differ
    (`analysis.load.tree`). `common` is what `common_of` returns, where the caller has it. Raises NothingInCommon when
    there is no row to compare, and none is missing."""
    points: dict[str, Point | None] = {}
    messages: Point | None = None
    shared, results, only, lacks = 0, 0, [0, 0], [0, 0]
    left_out: set[str] = set()
    lone: list[Lone] = []
    through: list[int] = []
    common = common or common_of(frames, a, b)
    for table in ("fingerprints", "values"):
        both = _Shared(frames, table, a, b, common)
        shared += both.rows
        results += both.results
        left_out |= both.left_out
        only[0] += int(both.left.rows.sum()) - both.rows
        only[1] += int(both.right.rows.sum()) - both.rows
        if both.rows:
            through.append(int(both.left.step[both.in_left].max()))
        points[table] = _first(both, lambda name: not name.startswith(SOURCE))
        if table == "values":
            messages = _first(both, lambda name: name.startswith(SOURCE))
        missing = both.missing()
        for side, (count, _) in enumerate(missing):
            lacks[1 - side] += count
        firsts = [first for _, first in missing if first]
        lone += sorted(firsts, key=lambda row: (row.step, row.seq, row.block))[:1]
    ended, final = _final(frames, a, b, common)
    if not shared and not lone and not ended:
        raise NothingInCommon(
            f"{a[0]}:{a[1]} and {b[0]}:{b[1]} recorded nothing of the same step, name and block, so there is "
            f"nothing to compare{_because(left_out)}; give two runs of one problem that record fingerprints"
        )
    fingerprint = points["fingerprints"]
    values, largest = _nearby(frames, a, b, fingerprint, common)
    return Comparison(
        a, b, fingerprint, points["values"], _first_order(frames, a, b), values, largest,
        compared=shared, only_a=only[0], only_b=only[1], through=max(through, default=-1),
        lacks_a=lacks[0], lacks_b=lacks[1], lone=min(lone, key=lambda row: row.step, default=None),
        recordings=common.differ, messages=messages, results=results, ended=ended, final=final,
        left_out=tuple(sorted(left_out)),
    )  # fmt: skip


def _because(left_out: set[str]) -> str:
    return f" (of {len(left_out)} calls, ranks added arrays of their own in another way)" if left_out else ""


def _final(frames: Frames, a: Id, b: Id, common: Common) -> tuple[bool, int | None]:
    """Whether both runs have the hash of a final state of one step, and that step where they differ in it."""
    rows = [_row_of(frames, run) for run in (a, b)]
    states, steps = ([row[key] for row in rows] for key in ("state", "last_step"))
    if not all(states) or steps[0] != steps[1] or common.hashed:
        return False, None
    return True, None if states[0] == states[1] else int(steps[0])


def _row_of(frames: Frames, run: Id) -> pd.Series:
    runs = frames.runs
    return runs[((runs["run"] == run[0]) & (runs["repeat"] == run[1])).to_numpy()].iloc[0]


@dataclass(frozen=True)
class Among:
    """What is known of several runs together: `comparisons` of as many pairs as it takes, `whole` where these stand for
    every pair, and not for the pairs with the first run alone. `compared` of the runs could be compared with each
    other, directly or over a third; the rest has nothing in common with these. `kinds`: runs that recorded the same
    rows in the same way."""

    comparisons: tuple[Comparison, ...]
    compared: tuple[Id, ...]
    kinds: tuple[tuple[Id, ...], ...]
    whole: bool


def among(frames: Frames, runs: Iterable[Id]) -> Among:
    """`runs` compared with each other.

    Runs that recorded the same rows in the same way are compared with the first of them: equality is passed on among
    them. Of runs that recorded other rows every two kinds are compared, since the first may lack what the others have.
    """
    runs = list(runs)
    rows = {
        run: row
        for run, row in zip(ids_of(frames), frames.runs[list(TELLING)].to_dict("records"), strict=True)
    }
    kinds: dict[tuple, list[Id]] = {}
    for run in runs:
        kinds.setdefault((recording(rows[run]), _recorded_rows(frames, run)), []).append(run)
    own = list(kinds.values())
    pairs = [(same[0], other) for same in own for other in same[1:]]
    firsts = [same[0] for same in own]
    every = len(firsts) <= KINDS
    pairs += itertools.combinations(firsts, 2) if every else [(firsts[0], other) for other in firsts[1:]]
    comparisons, linked = [], {run: {run} for run in runs}
    for a, b in pairs:
        try:
            comparisons.append(compare(frames, a, b, common(rows[a], rows[b])))
        except NothingInCommon:
            continue
        if linked[a] is not linked[b]:
            linked[a] |= linked[b]
            for run in linked[b]:
                linked[run] = linked[a]
    most = max(linked.values(), key=len, default=set())
    compared = tuple(run for run in runs if run in most) if len(most) > 1 else ()
    return Among(tuple(comparisons), compared, tuple(map(tuple, own)), every)


def ids_of(frames: Frames) -> list[Id]:
    """The (run, repeat) of all runs of `frames`."""
    return list(zip(frames.runs["run"], frames.runs["repeat"].tolist(), strict=True))


def _recorded_rows(frames: Frames, run: Id) -> bytes:
    """A hash of which rows a run recorded: equal for runs that recorded the same ones."""
    digest = hashlib.blake2b(digest_size=16)
    for table in ("fingerprints", "values"):
        tree = frames.leaves(table, *run)
        order = np.lexsort((tree.leaf, tree.occurrence, tree.name, tree.step))
        for column in (tree.step, tree.name, tree.occurrence, tree.leaf, tree.rows, tree.keys):
            digest.update(column[order].tobytes())
        digest.update(b"|")
    row = _row_of(frames, run)
    digest.update(f"{bool(row['state'])} {row['last_step']}".encode())
    return digest.digest()


def common_of(frames: Frames, a: Id, b: Id) -> Common:
    """What two (run, repeat) must both have recorded."""
    return common(*(_row_of(frames, run) for run in (a, b)))


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
        known = np.array([each.startswith(SOURCE) for each in both.frames.names], bool)
        ranks = known[left["name"].cat.codes.to_numpy()]  # numbers of ranks are equal or not, and never near
        relative, ulp = np.where(ranks, 0.0, relative), np.where(ranks, 0.0, ulp)
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
        self.left_out = self._unaligned() if common.moved else set()
        kept = self._of(self.left, self._wanted)[self.in_left]
        if not kept.all():
            self.in_left, self.in_right = self.in_left[kept], self.in_right[kept]
        pairs = [
            (getattr(self.left, key)[self.in_left], getattr(self.right, key)[self.in_right]) for key in HASHES
        ]
        self.unequal = np.any([one != other for one, other in pairs], axis=0)
        other_blocks = pairs[0][0] != pairs[0][1]
        self.rows = int(self.left.rows[self.in_left[~other_blocks]].sum())
        state = np.array([is_state(name) for name in frames.names], bool)
        same = self.in_left[~other_blocks]
        self.results = int(self.left.rows[same][state[self.left.name[same]]].sum())
        if other_blocks.any():
            shared = self.aligned(other_blocks)[0]
            self.rows += len(shared)
            self.results += int(state[shared["name"].cat.codes.to_numpy()].sum())
        self.other_blocks = other_blocks

    def _wanted(self, name: str) -> bool:
        return name not in self.left_out and not self.common.dropped(self.table, name)

    def _must(self, name: str) -> bool:
        """Whether both must have the rows of a name. On other rank counts a program may make other calls."""
        if self.common.unaligned and name.startswith(PASSING):
            code = self.frames.names.index(name)
            if not (np.any(self.left.name == code) and np.any(self.right.name == code)):
                return False
        return self._wanted(name) and not self.common.may_lack(self.table, name)

    def _unaligned(self) -> set[str]:
        """Names of what both runs pass on, which the rule leaves out or whose steps are not those of one program: a
        step counts collective calls on all ranks, and a communicator may have all ranks of one run and a part of
        another's."""
        found = set()
        for code in np.intersect1d(self.left.name, self.right.name).tolist():
            name = self.frames.names[code]
            if not name.startswith(PASSING) or OF_A_RANK.fullmatch(name):
                continue
            one, other = (np.sort(tree.step[tree.name == code]) for tree in (self.left, self.right))
            shorter = min(len(one), len(other))
            moved = self.common.unaligned and not np.array_equal(one[:shorter], other[:shorter])
            if moved or self.common.partial(name):
                found.add(name)
        return found

    def missing(self) -> list[tuple[int, Lone | None]]:
        """For each run, how many rows it has that the other must have and lacks, and the first of them."""
        missing_rows = []
        sides = ((self.a, self.left, self.in_left), (self.b, self.right, self.in_right))
        for (run, tree, joined), (_, other, matched) in zip(sides, sides[::-1], strict=True):
            must = self._of(tree, self._must)
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

    def of_names(self, wanted: Callable[[str], bool]) -> np.ndarray:
        """Which of the shared leaves have a `wanted` name: bool."""
        return self._of(self.left, wanted)[self.in_left]

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


def _first(both: _Shared, wanted: Callable[[str], bool]) -> Point | None:
    """The first row of a `wanted` name that differs. Leaves whose blocks are not the same may hold none, so that they
    are tried in turn."""
    unequal = np.flatnonzero(both.unequal & both.of_names(wanted))
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
    numbers = both.of_names(lambda name: not name.startswith(SOURCE))
    left, right = both.aligned(both.unequal & numbers & (both.left.step[both.in_left] == at.step))
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
