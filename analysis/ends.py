"""Finds the last records of runs: the bits of states and results in the last step that all of them recorded."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.divergence.kinds import TABLES, arrangement, recordings, rows
from analysis.divergence.recorded import common
from analysis.load.columns import PAYLOAD
from analysis.load.frames import Frames, once
from analysis.runs import Id, ids
from miniapps.trace.records import is_state


@dataclass(frozen=True)
class Ends:
    """The outcomes of some runs: the bits of one name in the last `step` in which all of them recorded it.

    `outcome` (runs,) int64 numbers the bits: runs with equal bits have the same number, the first run has 0. `alike`:
    True if all recorded the same blocks. If not, `outcome` covers the rows that all have; None: there are none."""

    step: int
    outcome: np.ndarray | None
    alike: bool

    @property
    def counts(self) -> list[int]:
        """The number of runs with each outcome."""
        return [] if self.outcome is None else np.bincount(self.outcome).tolist()


@once
def names(frames: Frames, table: str) -> list[str]:
    """The names of states and results in `table`, in the order in which they are recorded within a step."""
    least = np.full(len(frames.names), np.iinfo(np.int32).max, np.int32)
    known = np.zeros(len(frames.names), bool)
    for run in ids(frames.runs):
        tree = frames.leaves(table, *run)
        np.minimum.at(least, tree.name, tree.seq)
        known[tree.name] = True
    ordered = sorted(np.flatnonzero(known).tolist(), key=lambda code: (least[code], code))
    return [name for name in (frames.names[code] for code in ordered) if is_state(name)]


def ends(frames: Frames, table: str, name: str, runs: Iterable[Id]) -> Ends | None:
    """The outcomes of `runs` for `name` in the last step in which all recorded it; None if there is no such step."""
    return _ends(frames, table, name, tuple(runs))


@once
def _ends(frames: Frames, table: str, name: str, runs: tuple[Id, ...]) -> Ends | None:
    places = _places(frames, table, name, runs)
    if places is None:
        return None
    step, here = places
    firsts = _one_of_each(frames, table, runs)
    keys = {_keys(frames, table, run, here[arrangement(frames, table, run)]) for run in firsts}
    if len(keys) > 1:
        outcome = _in_all(frames, table, runs, here)
        return Ends(step, None if outcome is None else _numbered(outcome), False)
    hashes = []
    for run in runs:
        tree, at = frames.leaves(table, *run), here[arrangement(frames, table, run)]
        hashes.append(tree.hi[at].tobytes() + tree.lo[at].tobytes())
    return Ends(step, _numbered(hashes), True)


def final(
    frames: Frames, table: str, name: str, runs: Iterable[Id]
) -> tuple[int, np.ndarray, np.ndarray] | None:
    """(step, outcome of each run, bits of each outcome) for `name` in the last step in which all `runs` recorded it.

    Outcomes are int64 (runs,), bits uint64 (outcomes, rows, words) with rows sorted by occurrence and block. None if
    there is no such step, or if the runs recorded different blocks."""
    runs = tuple(runs)
    known = ends(frames, table, name, runs)
    if known is None or not known.alike or known.outcome is None:
        return None
    places = _places(frames, table, name, runs)
    assert places is not None
    first = np.unique(known.outcome, return_index=True)[1]
    words = []
    for run in (runs[i] for i in first.tolist()):
        at = frames.leaves(table, *run).places(places[1][arrangement(frames, table, run)])
        columns = frames.columns(table, run[0], at)
        words.append(np.stack([columns[key].view(np.uint64) for key in PAYLOAD[table]], axis=1))
    return known.step, known.outcome, np.stack(words)


def outcomes(frames: Frames, runs: pd.DataFrame) -> list[int] | None:
    """The result of each row of `runs` as a number; equal bits have equal numbers. None if they share no record.

    A result is every final fingerprint and value that all runs recorded, and the state in result.json if all have one
    of the same step. A row that one run lacks does not count as a difference."""
    own = ids(runs)
    of, said = rows(frames), recordings(frames)
    places = [frames.places[run] for run in own]
    others = {said[place]: of[place] for place in places if said[place] != said[places[0]]}
    rules = [common(of[places[0]], other) for other in others.values()]
    parts = []
    for table in TABLES:
        for name in names(frames, table):
            if any(each.dropped(table, name) for each in rules):
                continue
            known = ends(frames, table, name, own)
            if known is not None and known.outcome is not None:
                parts.append(known.outcome)
    hashed = any(rule.hashed for rule in rules)
    if (runs["state"] != "").all() and runs["last_step"].nunique() == 1 and not hashed:
        parts.append(_numbered(runs["state"]))
    if not parts:
        return None
    return _numbered(row.tobytes() for row in np.stack(parts, axis=1)).tolist()


def _numbered(things: Iterable) -> np.ndarray:
    """Numbers `things` by value, in the order of first appearance: int64."""
    known: dict = {}
    return np.array([known.setdefault(thing, len(known)) for thing in things], np.int64)


def _one_of_each(frames: Frames, table: str, runs: tuple[Id, ...]) -> list[Id]:
    """One of `runs`, the first, for each arrangement of leaves."""
    return list({arrangement(frames, table, run): run for run in reversed(runs)}.values())


@once
def _places(
    frames: Frames, table: str, name: str, runs: tuple[Id, ...]
) -> tuple[int, dict[bytes, np.ndarray]] | None:
    """(the last step in which all `runs` recorded `name`, {arrangement: the leaves that hold it there}); None: none."""
    code = frames.names.index(name)
    recorded = {
        arrangement(frames, table, run): frames.leaves(table, *run).of(code)
        for run in _one_of_each(frames, table, runs)
    }
    steps = [steps for _, steps in recorded.values()]
    if not all(map(len, steps)):
        return None
    step = min(int(own[-1]) for own in steps)
    if not all(_has(own, step) for own in steps):
        shared = set.intersection(*(set(own.tolist()) for own in steps))
        if not shared:
            return None
        step = max(shared)
    return step, {
        key: leaves[np.searchsorted(own, step) : np.searchsorted(own, step, side="right")]
        for key, (leaves, own) in recorded.items()
    }


def _keys(frames: Frames, table: str, run: Id, here: np.ndarray) -> bytes:
    tree = frames.leaves(table, *run)
    return b"".join(column[here].tobytes() for column in (tree.occurrence, tree.leaf, tree.rows, tree.keys))


def _in_all(
    frames: Frames, table: str, runs: tuple[Id, ...], here: dict[bytes, np.ndarray]
) -> list[bytes] | None:
    """For each run the bits of the rows that all `runs` recorded, in one order; None if there are none."""
    each = []
    for run in runs:
        at = frames.leaves(table, *run).places(here[arrangement(frames, table, run)])
        each.append(pd.DataFrame(frames.columns(table, run[0], at)).set_index(["occurrence", "block"]))
    shared = functools.reduce(lambda one, other: one.intersection(other), (rows.index for rows in each))
    if shared.empty:
        return None
    shared = shared.sort_values()
    return [
        b"".join(rows.loc[shared, column].to_numpy().tobytes() for column in PAYLOAD[table]) for rows in each
    ]


def _has(ascending: np.ndarray, value: int) -> bool:
    place = np.searchsorted(ascending, value)
    return bool(place < len(ascending) and ascending[place] == value)
