"""Compares two runs step by step."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.divergence.kinds import TABLES, arrangement, kinds
from analysis.divergence.recorded import common_of
from analysis.divergence.shared import Shared, differ
from analysis.load.columns import PAYLOAD
from analysis.load.frames import Frames
from analysis.load.keys import groups
from analysis.runs import Id
from kernels import bits
from miniapps.trace.records import NO_NUMBERS, is_state

GROWTH = {"step": "int32", "kind": "str", "name": "str", "elements": "int64", "differing": "int64",
          "fraction": "float64", "max_relative": "float64", "max_ulp": "float64",
          "undefined": "int64"}  # fmt: skip


def growth(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """Compares states and results of `b` with `a` step by step: rows of `by_step`."""
    frame = by_step(frames, a, b)
    states = np.array([is_state(name) for name in frame["name"]], bool)  # an empty list would choose columns
    return frame[states].astype(GROWTH)


def by_step(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """Compares all records of `b` with `a`; columns GROWTH, a row per (kind, step, name) of all records.

    `kind` is "fingerprints" (elements are blocks) or "values". The maxima are over defined differences of values, NaN
    for fingerprints; `undefined` counts the undefined ones (kernels.bits).
    """
    pieces = []
    common = common_of(frames, a, b)
    for table in ("fingerprints", "values"):
        both = Shared(frames, table, a, b, common)
        if both.rows:
            pieces.append(_by_step_and_name(both))
    frame = pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=list(GROWTH))
    return frame.astype(GROWTH)


def _by_step_and_name(both: Shared) -> pd.DataFrame:
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
    differing = over(nothing, differ(both.table, left, right).astype(np.int64))
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
        known = np.array([each.startswith(NO_NUMBERS) for each in both.frames.names], bool)
        ranks = known[
            left["name"].cat.codes.to_numpy()
        ]  # ranks and places have no distance: only equal or not
        relative, ulp = np.where(ranks, 0.0, relative), np.where(ranks, 0.0, ulp)
        frame["max_relative"] = over(none, relative, np.fmax)  # fmax ignores NaN unless both are NaN
        frame["max_ulp"] = over(none, ulp, np.fmax)
        frame["undefined"] = over(nothing, (np.isnan(relative) | np.isnan(ulp)).astype(np.int64))
    seq = over(tree.seq[equal], left["seq"].to_numpy(), np.minimum)
    return frame.iloc[np.lexsort((seq, step[first]))]


def growths(frames: Frames, reference: Id, others: Iterable[Id]) -> pd.DataFrame:
    """`growth` of each of `others` from `reference`, with the columns `run` and `repeat` of the other.

    Runs of the kind of `reference` are compared at once, without a frame for each."""
    others = list(others)
    alike = _Alike(frames, reference)
    own = next(kind for kind in kinds(frames, [reference, *others]) if kind[0] == reference)
    known = {run: columns for run in own[1:] if (columns := alike.growth(run)) is not None}
    pieces: list[pd.DataFrame] = []
    for same, members in itertools.groupby(others, known.__contains__):
        if same:
            pieces.append(alike.frame({run: known[run] for run in members}))
        else:
            pieces += [growth(frames, reference, b).assign(run=b[0], repeat=b[1]) for b in members]
    return (
        pd.concat(pieces, ignore_index=True) if pieces else pd.DataFrame(columns=[*GROWTH, "run", "repeat"])
    )


class _Alike:
    """Compares runs of the kind of `reference` (`divergence.kinds`) with it: the columns of `growth` as arrays.

    `groups` {table: for each leaf of the reference, the row of its (step, name) in the frame; -1 if it is no state or
    result}."""

    def __init__(self, frames: Frames, reference: Id):
        self.frames, self.reference = frames, reference
        states = np.array([is_state(name) for name in frames.names], bool)
        self.groups, self.heads, rows = {}, [], 0
        for table in TABLES:
            tree = frames.leaves(table, *reference)
            kept = np.flatnonzero(states[tree.name])
            order, begin = groups(tree.step[kept], tree.name[kept])
            if not len(order):
                continue
            leaves = kept[order]
            seq = np.minimum.reduceat(tree.seq[leaves], begin)
            step, name = tree.step[leaves[begin]], tree.name[leaves[begin]]
            shown = np.lexsort((seq, step))
            place = np.empty(len(shown), np.int64)
            place[shown] = rows + np.arange(len(shown))
            of = np.full(len(tree.step), -1)
            of[leaves] = np.repeat(place, np.diff(begin, append=len(leaves)))
            self.groups[table] = of
            self.heads.append(
                (table, step[shown], name[shown], np.add.reduceat(tree.rows[leaves], begin)[shown])
            )
            rows += len(shown)
        self.rows = rows

    def growth(self, run: Id) -> dict[str, np.ndarray] | None:
        """`differing`, `max_relative`, `max_ulp` and `undefined` of `run`; None if its leaves have another order."""
        found = {"differing": np.zeros(self.rows, np.int64), "max_relative": np.full(self.rows, np.nan),
                 "max_ulp": np.full(self.rows, np.nan), "undefined": np.zeros(self.rows, np.int64)}  # fmt: skip
        for table, group in self.groups.items():
            if arrangement(self.frames, table, run) != arrangement(self.frames, table, self.reference):
                return None
            one, other = (self.frames.leaves(table, *each) for each in (self.reference, run))
            unequal = (one.hi != other.hi) | (one.lo != other.lo)
            if table == "values":
                equal = group[~unequal]
                for key in ("max_relative", "max_ulp"):
                    found[key][equal[equal >= 0]] = 0.0
            chosen = np.flatnonzero(unequal & (group >= 0))
            if not len(chosen):
                continue
            left, right = (
                self.frames.columns(table, each[0], tree.places(chosen))
                for each, tree in ((self.reference, one), (run, other))
            )
            at = np.repeat(group[chosen], one.rows[chosen])
            bits_ = [(left[key].view(np.uint64), right[key].view(np.uint64)) for key in PAYLOAD[table]]
            changed = np.any([x != y for x, y in bits_], axis=0)
            np.add.at(found["differing"], at, changed)
            if table == "values":
                x, y = left["value"], right["value"]
                relative, ulp = bits.relative_difference(x, y), bits.ulp_distance(x, y)
                np.fmax.at(found["max_relative"], at, relative)
                np.fmax.at(found["max_ulp"], at, ulp)
                np.add.at(found["undefined"], at, np.isnan(relative) | np.isnan(ulp))
        return found

    def frame(self, known: dict[Id, dict[str, np.ndarray]]) -> pd.DataFrame:
        """The rows of all runs, with the columns `run` and `repeat`."""
        names = np.array(self.frames.names, object)
        columns: dict[str, list[np.ndarray]] = {
            "step": [step for _, step, _, _ in self.heads],
            "kind": [np.full(len(step), table, object) for table, step, _, _ in self.heads],
            "name": [names[name] for _, _, name, _ in self.heads],
            "elements": [elements for *_, elements in self.heads],
        }
        whole = {
            key: np.tile(np.concatenate(parts), len(known)) if parts else np.empty(0)
            for key, parts in columns.items()
        }
        whole |= {
            key: np.concatenate([own[key] for own in known.values()])
            for key in ("differing", "max_relative", "max_ulp", "undefined")
        }
        table = pd.DataFrame(whole).assign(fraction=lambda table: table["differing"] / table["elements"])
        runs, repeats = (np.repeat(np.array(own, object), self.rows) for own in zip(*known, strict=True))
        table = table[list(GROWTH)].astype(GROWTH)
        return table.assign(run=pd.Series(runs, dtype="str"), repeat=repeats.astype(np.int64))
