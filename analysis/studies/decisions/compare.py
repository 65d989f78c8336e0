"""Compares decisions of pairs of runs, apart by the factor in which the two differ.

Pairs share runs, so they are not independent. An interval of a share is that of Clopper and Pearson (1934) for as many
independent pairs as the runs can form, half their number, with the same share: too wide rather than too narrow.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.pairs import of_each_other
from analysis.statistics import CONFIDENCE
from analysis.studies.contract import frame
from analysis.studies.decisions.runs import Decided, factor_of
from kernels.as_json import Column

WHERE = {
    "app": Column("str"), "family": Column("str", "the problem, as far as it differs from others of these runs"),
    "name": Column("str", "of the decision"), "factor": Column("str", "in which the two runs of a pair differ"),
}  # fmt: skip
SHARE = {
    "share": Column("float64", "fraction that decides differently"),
    "low": Column("float64", "of its interval at 95 %"),
    "high": Column("float64", "of its interval at 95 %"),
}
COMPARED = {
    **WHERE, "runs": Column("int64"), "pairs": Column("int64"),
    "differing": Column("int64", "pairs that decide differently"),
    **SHARE, "decisions": Column("int64", "decisions of a run"),
    "changed_mean": Column("float64", "fraction of the decisions that differ, mean over pairs"),
    "changed_most": Column("int64", "decisions that differ in one pair, the most"),
    "margin": Column("float64", "of all decisions, median"),
    "margin_changed": Column("float64", "largest margin of a decision that another run made differently"),
}  # fmt: skip
FIRST = {
    **WHERE, "a": Column("str"), "b": Column("str"), "step": Column("int64"), "block": Column("int64"),
    "outcome_a": Column("float64"), "outcome_b": Column("float64"), "margin_a": Column("float64"),
    "margin_b": Column("float64"),
}  # fmt: skip
PROBLEMS = {
    "app": WHERE["app"], "name": WHERE["name"], "factor": WHERE["factor"],
    "problems": Column("int64"), "differing": Column("int64", "problems of which a pair of runs decides differently"),
    **SHARE,
}  # fmt: skip


def compared(known: list[Decided]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(a row for each problem, decision and factor, columns COMPARED; the first decision of each that differs, in any
    pair, columns FIRST)."""
    rows, firsts = [], []
    for each in known:
        i, j = of_each_other(len(each.runs))
        apart = {factor: level[i] != level[j] for factor, level in each.levels.items()}
        kinds = np.array([factor_of({f for f in apart if apart[f][k]}) for k in range(len(i))], str)
        changed = [_changed(each, a, b) for a, b in zip(i.tolist(), j.tolist(), strict=True)]
        for factor in dict.fromkeys(kinds.tolist()):
            own = np.flatnonzero(kinds == factor)
            where = {"app": each.app, "family": each.family, "name": each.name, "factor": factor}
            counts = np.array([np.count_nonzero(changed[k]) for k in own])
            involved = np.union1d(i[own], j[own])
            share = float((counts > 0).mean())
            flipped = [each.margins[side[k]][changed[k]] for k in own for side in (i, j)]
            rows.append(where | {
                "runs": len(involved), "pairs": len(own), "differing": int((counts > 0).sum()), "share": share,
                **dict(zip(("low", "high"), interval(share, len(involved) // 2), strict=True)),
                "decisions": each.outcomes.shape[1], "changed_mean": counts.mean() / each.outcomes.shape[1],
                "changed_most": int(counts.max()), "margin": _median(each.margins[involved]),
                "margin_changed": max((x for part in flipped for x in part.tolist() if x == x), default=np.nan),
            })  # fmt: skip
            if counts.any():
                firsts.append(where | _first(each, [(i[k], j[k], changed[k]) for k in own]))
    return frame(rows, COMPARED), frame(firsts, FIRST)


def problems(rows: pd.DataFrame) -> pd.DataFrame:
    """Of `compared` rows: for each application, decision and factor the share of problems of which some pair of runs
    decides differently; columns PROBLEMS."""
    found = []
    for (app, name, factor), same in rows.groupby(["app", "name", "factor"], sort=False):
        share = float((same["differing"] > 0).mean())
        low, high = interval(share, len(same))
        found.append({
            "app": app, "name": name, "factor": factor, "problems": len(same),
            "differing": int((same["differing"] > 0).sum()), "share": share, "low": low, "high": high,
        })  # fmt: skip
    return frame(found, PROBLEMS)


def interval(share: float, trials: int) -> tuple[float, float]:
    """The interval of Clopper and Pearson of a probability, from the `share` of so many trials; 0 to 1 for none. Here
    trials are half the runs, so their hits may be half a one; `scipy.stats.binomtest` takes whole hits."""
    from scipy.stats import beta

    tail, hits = (1 - CONFIDENCE) / 2, share * trials
    low = float(beta.ppf(tail, hits, trials - hits + 1)) if hits > 0 else 0.0
    high = float(beta.ppf(1 - tail, hits + 1, trials - hits)) if hits < trials else 1.0
    return low, high


def _changed(each: Decided, a: int, b: int) -> np.ndarray:
    """Which decisions differ between two runs, those that only one of them made too; bool (decisions,)."""
    x, y = each.outcomes[a], each.outcomes[b]
    both: np.ndarray = (x != y) & ~(np.isnan(x) & np.isnan(y))
    return both


def _first(each: Decided, pairs: list[tuple[int, int, np.ndarray]]) -> dict[str, object]:
    """The decision of the earliest step, then of the lowest place, that differs in one of `pairs`."""
    found = []
    for a, b, changed in pairs:
        if len(places := np.flatnonzero(changed)):
            at = int(places[np.argsort(each.steps[places], kind="stable")[0]])
            found.append((int(each.steps[at]), at, int(a), int(b)))
    _, at, a, b = min(found)
    return {
        "a": each.runs[a], "b": each.runs[b], "step": each.steps[at], "block": each.blocks[at],
        "outcome_a": each.outcomes[a, at], "outcome_b": each.outcomes[b, at],
        "margin_a": each.margins[a, at], "margin_b": each.margins[b, at],
    }  # fmt: skip


def _median(margins: np.ndarray) -> float:
    known = margins[~np.isnan(margins)]
    return float(np.median(known)) if len(known) else np.nan
