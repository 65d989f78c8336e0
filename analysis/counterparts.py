"""Compares runs with a run of another group: a replay with its source, a run with a fault with one without.

A replay repeats the orders of arrival and the choices of its source, so it must have the same bits. A run with an
injected fault is compared with a run that differs in nothing else: the difference is the effect of the fault.
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
ALIKE = ["app", "problem", "size", "guarantee"]  # columns that are equal for a run and its counterpart


@dataclass(frozen=True)
class Counterpart:
    """The comparison of runs with runs of another group.

    kind     REPLAY or FAULT
    given    the replayed run, or the injected fault
    source   the run of the other group in the comparison `shown`
    first    the comparison with the earliest divergence; None: all are equal
    lacking  a comparison for which records are missing, if none differs
    apart    the entries of the environment in which a replay and its source differ
    """

    kind: str
    given: str
    source: Id
    first: Comparison | None
    lacking: Comparison | None
    apart: tuple[str, ...]
    shown: Comparison


def counterpart(frames: Frames, runs: pd.DataFrame, members: pd.DataFrame) -> Counterpart | None:
    """Compares the complete runs `members` of one group with their sources among `runs`; both are rows of `grouped`.

    None if there is no source, or none that can be compared."""
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
    """The run that `row` replays, else the first run that differs only in having no fault; empty if there is none."""
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
    """The value of the option with this effect; empty if it is not set."""
    values = of_effect(row["method"], row["options"], effect).values()
    return ", ".join(str(value) for value in values if value not in UNSET)


def _but_fault(row: pd.Series) -> dict:
    return factors(row["method"], row["options"], (FAULT,))


def _shared_tail(path: str, other: str) -> int:
    """The number of last components that two paths share; earlier ones change if a campaign is moved."""
    pairs = zip(reversed(PurePath(path).parts), reversed(PurePath(other).parts), strict=False)
    return next(
        (k for k, (a, b) in enumerate(pairs) if a != b), min(len(PurePath(p).parts) for p in (path, other))
    )


def _apart(one: pd.Series, other: pd.Series) -> tuple[str, ...]:
    """The environment entries of two runs that differ, among the conditions of the guarantee `run`."""
    entries = apart(json.loads(one["environment"]), json.loads(other["environment"]), "run")
    return tuple(f"{key}: {a}; {b}" for key, a, b in entries)
