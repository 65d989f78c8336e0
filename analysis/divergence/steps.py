"""How two runs differ step by step."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.divergence.recorded import common_of
from analysis.divergence.shared import Shared, differ
from analysis.load.frames import Frames
from analysis.load.keys import groups
from analysis.runs import Id
from kernels import bits
from miniapps.trace.records import SOURCE, is_state

GROWTH = {"step": "int32", "kind": "str", "name": "str", "elements": "int64", "differing": "int64",
          "fraction": "float64", "max_relative": "float64", "max_ulp": "float64",
          "undefined": "int64"}  # fmt: skip


def growth(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """How `b` differs from `a` step by step: the rows of `by_step` for states and results."""
    frame = by_step(frames, a, b)
    states = np.array([is_state(name) for name in frame["name"]], bool)  # an empty list would choose columns
    return frame[states].astype(GROWTH)


def by_step(frames: Frames, a: Id, b: Id) -> pd.DataFrame:
    """How `b` differs from `a`; columns GROWTH, a row per (kind, step, name) of all records.

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
