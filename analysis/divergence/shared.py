"""Finds the rows that two runs both recorded, and the rows that one of them lacks."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd

from analysis.divergence.points import Lone
from analysis.divergence.recorded import LAST, Common
from analysis.load.frames import Frames
from analysis.load.store import Leaves
from analysis.load.tree import HASHES
from analysis.runs import Id
from kernels import bits
from miniapps.trace.layouts import OF_A_RANK, Alignment, align
from miniapps.trace.records import PASSING, is_state

KEY = ["step", "name", "occurrence", "block"]
ARRAY = ["dtype", "count"]


class Shared:
    """The rows of one table that two (run, repeat) both recorded and that are compared, as leaves of hash trees.

    `in_left`, `in_right`: the indices of leaves with equal (step, name, occurrence, leaf) in both; `unequal`: a mask of
    these that differ in blocks or bits; `rows`: the number of rows with equal step, name, occurrence and block.
    `alignment` maps steps of `b` to steps of `a`.
    """

    def __init__(self, frames: Frames, table: str, a: Id, b: Id, common: Common):
        self.frames, self.table, self.a, self.b, self.common = frames, table, a, b, common
        self.left, self.right = frames.leaves(table, *a), frames.leaves(table, *b)
        self.numbers = {name: number for number, name in enumerate(frames.names)}
        self.begin = _both_begun(frames, a, b) if common.restarted else 0
        self.alignment: Alignment | None = None
        self.unlike: set[str] = set()
        self.moved: set[str] = set()
        if common.moved:
            names = filter(self._wanted, self._passing(self.left, self.right))
            self.unlike = {name for name in names if self._of_no_array(name)}
        if common.unaligned:
            self.alignment = align(self._calls(self.left), self._calls(self.right))
            self.right = replace(self.right, step=self.alignment.in_a(self.right.step))
            self.moved = self._unaligned()
        self.in_left, self.in_right = _joined(self.left, self.right)
        parted = self.alignment.parted if self.alignment and self.moved else None
        self.parted = LAST if parted is None else parted
        kept = self._of(self.left, self._wanted)[self.in_left]
        resized = np.zeros(len(kept), bool)
        if common.unaligned and table == "fingerprints":
            resized = kept & self._resized()
            kept &= ~resized
        self.resized = self.in_left[resized], self.in_right[resized]
        names = np.unique(self.left.name[self.resized[0]]).tolist()
        self.left_out = self.unlike | self.moved | {frames.names[code] for code in names}
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
        return name not in self.unlike and not self.common.dropped(self.table, name)

    def _must(self, name: str) -> bool:
        """True if both runs must have the rows of a name. On another number of ranks a program may make other calls."""
        if self.common.unaligned and name.startswith(PASSING):
            code = self.numbers[name]
            if not (np.any(self.left.name == code) and np.any(self.right.name == code)):
                return False
        return self._wanted(name) and not self.common.may_lack(self.table, name)

    def _of_no_array(self, name: str) -> bool:
        """True if records of this message or sum are not of the same array in both runs, as far as names tell."""
        if self.common.partial(name):
            return True
        return self.common.resized(name) and not all(len(sizes) for sizes in self._sizes([name]))

    def _unaligned(self) -> set[str]:
        """Names of messages and sums in both runs whose steps differ. One run may make more calls, as a solver does
        that iterates more often."""
        moved = set()
        for name in filter(self._wanted, self._passing(self.left, self.right)):
            code = self.numbers[name]
            one, other = (np.sort(tree.step[tree.name == code]) for tree in (self.left, self.right))
            shorter = min(len(one), len(other))
            if not np.array_equal(one[:shorter], other[:shorter]):
                moved.add(name)
        return moved

    def _passing(self, *trees: Leaves) -> list[str]:
        """Names of messages and sums in all `trees`, without contributions of whole ranks."""
        codes = functools.reduce(np.intersect1d, (tree.name for tree in trees))
        names = [self.frames.names[code] for code in np.unique(codes).tolist()]
        return [name for name in names if name.startswith(PASSING) and not OF_A_RANK.fullmatch(name)]

    def _calls(self, tree: Leaves) -> np.ndarray:
        """(step, name) of the compared records of calls that both runs make: int64 (2, n), sorted and unique."""
        known = np.zeros(len(self.frames.names), bool)
        for name in self._passing(self.left, self.right):
            known[self.numbers[name]] = self._wanted(name)
        kept = known[tree.name]
        return np.unique(np.stack([tree.step[kept], tree.name[kept]]).astype(np.int64), axis=1)

    def _sizes(self, names: list[str]) -> list[pd.DataFrame]:
        """The sizes of whole arrays that each run recorded under these names: columns ARRAY, by (step of `a`, name,
        occurrence)."""
        sides = []
        for run in (self.a, self.b):
            rows = self.frames.of("sizes", *run)
            rows = self.at_steps_of_a(
                run, rows[(rows["name"].isin(names) & (rows["block"] == -1)).to_numpy()]
            )
            keys = [codes(rows, key) for key in KEY[:-1]]
            frame = pd.DataFrame({key: codes(rows, key) for key in ARRAY}, pd.MultiIndex.from_arrays(keys))
            sides.append(frame[~frame.index.duplicated()])
        return sides

    def _resized(self) -> np.ndarray:
        """A mask of the shared leaves whose arrays have different lengths or types in the two runs."""
        tree, at = self.left, self.in_left
        keys = pd.MultiIndex.from_arrays([tree.step[at], tree.name[at], tree.occurrence[at]])
        names = [self.frames.names[code] for code in np.unique(tree.name[at]).tolist()]
        one, other = (sizes.reindex(keys).to_numpy() for sizes in self._sizes(names))
        known = ~(np.isnan(one) | np.isnan(other)).any(axis=1)
        return known & (one != other).any(axis=1)

    def at_steps_of_a(self, run: Id, rows: pd.DataFrame) -> pd.DataFrame:
        """`rows` of one of the runs with steps of `a`; if steps are mapped, `own_step` has the steps of the run."""
        if self.alignment is None or run != self.b:
            return rows
        return rows.assign(own_step=rows["step"], step=self.alignment.in_a(rows["step"].to_numpy()))

    def missing(self) -> list[tuple[int, Lone | None]]:
        """For each run, the number of rows that the other one lacks, and the first of them."""
        missing_rows = []
        sides = (
            (self.a, self.left, self.in_left, self.resized[0]),
            (self.b, self.right, self.in_right, self.resized[1]),
        )
        for (run, tree, joined, resized), (_, other, matched, _) in zip(sides, sides[::-1], strict=True):
            must = self._of(tree, self._must)
            must &= tree.step <= self.common.until
            alone = must.copy()
            alone[joined] = alone[resized] = False
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
        """A mask of the leaves of compared steps that have a `wanted` name."""
        known, until = np.zeros(len(self.frames.names), bool), np.full(len(self.frames.names), LAST)
        for code in np.unique(tree.name).tolist():
            name = self.frames.names[code]
            known[code] = wanted(name)
            if name in self.moved:
                until[code] = self.parted - 1
        return known[tree.name] & (tree.step >= self.begin) & (tree.step <= until[tree.name])

    def of_names(self, wanted: Callable[[str], bool]) -> np.ndarray:
        """A mask of the shared leaves that have a `wanted` name."""
        return self._of(self.left, wanted)[self.in_left]

    def _rows(self, run: Id, tree: Leaves, places: np.ndarray) -> pd.DataFrame:
        """The rows of the leaves in `places`, names as text."""
        rows = self.frames.at(self.table, run[0], tree.places(np.sort(places)))
        return self.at_steps_of_a(run, rows.assign(name=rows["name"].astype("str")))

    def aligned(self, chosen: np.ndarray) -> tuple[pd.DataFrame, pd.DataFrame]:
        """The rows in both runs below the shared leaves of the mask `chosen`, in the same order."""
        left = self.frames.at(self.table, self.a[0], self.left.places(self.in_left[chosen]))
        right = self.frames.at(self.table, self.b[0], self.right.places(self.in_right[chosen]))
        right = self.at_steps_of_a(self.b, right)
        if len(left) == len(right) and all(
            codes(left, key).tobytes() == codes(right, key).tobytes() for key in KEY
        ):
            return left, right
        keys = [
            pd.DataFrame({key: codes(side, key) for key in KEY} | {f"row_{name}": np.arange(len(side))})
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
    """The indices in `left` and in `right` of leaves that both have."""
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


def codes(rows: pd.DataFrame, key: str) -> np.ndarray:
    """The column `key` as int64; names as their codes."""
    column = rows[key]
    return (column.cat.codes if key in ("name", "dtype") else column).to_numpy(np.int64)


def differ(table: str, left: pd.DataFrame, right: pd.DataFrame) -> np.ndarray:
    """A mask of the aligned rows whose bits differ."""
    if table == "values":
        return bits.differ(left["value"].to_numpy(), right["value"].to_numpy())
    return np.any([left[word].to_numpy() != right[word].to_numpy() for word in ("hi", "lo")], axis=0)
