"""Runs that are compared with a run of another group: a replay with its source, a faulty run with the sound one.

A replay repeats the orders of arrival and the choices of its source, so it must have its bits. A run with an injected
fault is compared with a run that is alike in all else: what differs is what the fault did.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePath

import pandas as pd

from analysis.divergence.compare import NothingInCommon, compare
from analysis.divergence.points import Comparison
from analysis.groups import UNSET, factors, of_effect
from analysis.load.frames import Frames
from analysis.runs import Id
from miniapps.system.scope import apart

REPLAY, FAULT = "replay", "fault"
ALIKE = ["app", "problem", "size", "guarantee"]  # what a run and its counterpart have in common


@dataclass(frozen=True)
class Counterpart:
    """The comparison of runs with runs of another group, of `kind` REPLAY or FAULT: `given` is the replayed run or the
    injected fault, `source` the other run of the comparison that is `shown`. `first` is the earliest divergence,
    `lacking` a comparison for which records are missing, `apart` the entries of the environment in which a replay and
    its source differ."""

    kind: str
    given: str
    source: Id
    first: Comparison | None
    lacking: Comparison | None
    apart: tuple[str, ...]
    shown: Comparison


def counterpart(frames: Frames, runs: pd.DataFrame, members: pd.DataFrame) -> Counterpart | None:
    """What the complete runs `members` of one group are compared with among `runs`, both rows of `grouped`; None where
    there is nothing."""
    pairs = [(other, row) for _, row in members.iterrows() for other in _sources(runs, row)]
    comparisons = []
    for other, row in pairs:
        try:
            comparisons.append((compare(frames, _id(other), _id(row)), other, row))
        except NothingInCommon:
            continue
    if not comparisons:
        return None
    differing = [each for each in comparisons if each[0].differs]
    lacking = next((each for each in comparisons if not each[0].comparable), None)
    chosen = min(differing, key=lambda each: each[0].when, default=None)
    comparison, other, row = chosen or lacking or comparisons[0]
    kind = REPLAY if _given(row, REPLAY) else FAULT
    entries = _apart(other, row) if kind == REPLAY else ()
    return Counterpart(
        kind, _given(row, kind), comparison.a, comparison if chosen else None,
        None if chosen or lacking is None else comparison, entries, comparison,
    )  # fmt: skip


def _sources(runs: pd.DataFrame, row: pd.Series) -> list[pd.Series]:
    """The run that `row` replays, else the first that is like it but without its fault; none where there is none."""
    replayed, fault = _given(row, REPLAY), _given(row, FAULT)
    if not replayed and not fault:
        return []
    alike = runs[(runs[ALIKE] == row[ALIKE]).all(axis=1) & runs["complete"] & (runs["run"] != row["run"])]
    if replayed:
        alike = alike[(alike["repeat"] == row["repeat"]).to_numpy()]
        shared = [_shared_tail(path, replayed) for path in alike["path"]]
        most = max(shared, default=0)
        return [alike.iloc[shared.index(most)]] if most and shared.count(most) == 1 else []
    alike = alike[~alike["faulty"] & (alike["ordering"] == row["ordering"])]
    own = _but_fault(row)
    return [other for _, other in alike.iterrows() if _but_fault(other) == own][:1]


def _id(row: pd.Series) -> Id:
    return str(row["run"]), int(row["repeat"])


def _given(row: pd.Series, effect: str) -> str:
    """The value of the option of this effect; empty where it is not set."""
    values = of_effect(row["method"], row["options"], effect).values()
    return ", ".join(str(value) for value in values if value not in UNSET)


def _but_fault(row: pd.Series) -> dict:
    return factors(row["method"], row["options"], (FAULT,))


def _shared_tail(path: str, other: str) -> int:
    """How many last parts two paths have in common: a campaign may have moved since."""
    pairs = zip(reversed(PurePath(path).parts), reversed(PurePath(other).parts), strict=False)
    return next(
        (k for k, (a, b) in enumerate(pairs) if a != b), min(len(PurePath(p).parts) for p in (path, other))
    )


def _apart(one: pd.Series, other: pd.Series) -> tuple[str, ...]:
    """What the environments of two runs differ in, of what `run` takes for granted."""
    entries = apart(json.loads(one["environment"]), json.loads(other["environment"]), "run")
    return tuple(f"{key}: {a}; {b}" for key, a, b in entries)
