"""Compares solves: the first difference of two histories, its size, and changes of decisions.

The decision of a solve is its number of iterations, and whether it converged. Repeats of a case are compared with the
first of them: this is run-to-run variation. Cases are compared with the reference of their family, which includes the
change of ordering, layout or kernel. The two are never mixed.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd

from analysis.groups import LEVELS
from analysis.pairs import EACH_OTHER
from analysis.runs import Id, label
from analysis.studies.contract import frame
from analysis.studies.solves.runs import Solves
from kernels import bits
from kernels.as_json import Column

PAIRS = {
    "family": Column("str"), "case": Column("str"), "against": Column("str"), "a_run": Column("str"),
    "a_repeat": Column("int64"), "b_run": Column("str"), "b_repeat": Column("int64"),
    "compared": Column("int64", "common iterations"), "differing": Column("int64", "iterations that differ in bits"),
    "first": Column("float64", "first iteration that differs"),
    "largest": Column("float64", "relative difference of residuals"),
    "at": Column("float64", "iteration of the largest"),
    "undefined": Column("int64", "differences that are NaN"),
}  # fmt: skip
CASES = {
    "family": Column("str"), "case": Column("str"), "guarantee": Column("str"), "ordering": Column("str"),
    "ranks": Column("int64"), "solves": Column("int64", "complete solves"), "incomplete": Column("int64"),
    "decisions": Column("list of objects", "`iterations`, `converged`, `solves`"), "converged": Column("int64"),
    "histories": Column("int64", "different histories"), "recorded": Column("int64", "solves with a solution"),
    "solutions": Column("int64", "different solutions"), "residual": Column("float64", "smallest last residual"),
    "residual_most": Column("float64", "largest last residual"), "true_residual": Column("float64", "largest"),
    "gap": Column("float64", "largest"), "attained": Column("float64", "largest"),
    "error": Column("float64", "largest"), "orthogonality": Column("float64", "largest"),
    "not_finite": Column("int64", "residuals"),
}  # fmt: skip
DECISIONS = {
    "family": Column("str"), "solves": Column("int64"), "cases": Column("int64"),
    "decisions": Column("list of objects", "`iterations`, `converged`, `solves`"),
    "changed": Column("bool", "solves took different decisions"), "samples": Column("int64", "of the drift study"),
    "sample_decisions": Column("list of objects", "`iterations`, `samples`"),
    "samples_changed": Column("bool", "samples of a case took different decisions"),
}  # fmt: skip


def cases(solves: Solves) -> pd.DataFrame:
    """A row per case; columns CASES. `decisions` {(iterations, converged): number of complete solves that recorded
    them}. `histories` and `solutions` count bit patterns over complete solves; `recorded` counts solves with a recorded
    solution. `residual` is the smallest last residual; `residual_most`, `true_residual`, `gap`, `attained` (see
    Solves), `error` and `orthogonality` are the largest over solves."""
    rows = []
    for (family, case), same in solves.solves.groupby(["family", "case"], sort=False):
        done = same[same["complete"]]
        used = done if len(done) else same
        rows.append(
            {
                "family": family, "case": case, **same.iloc[0][["guarantee", "ordering", "ranks"]],
                "solves": len(done), "incomplete": len(same) - len(done), "decisions": decisions_of(done),
                "converged": int((done["converged"] == 1).sum()), "histories": done["history"].nunique(),
                "recorded": int((done["solution"] != "").sum()),
                "solutions": done.loc[done["solution"] != "", "solution"].nunique(),
                "residual": used["residual"].min(), "residual_most": used["residual"].max(),
                **{name: used[name].max() for name in ("true_residual", "gap", "attained", "error",
                                                       "orthogonality")},
                "not_finite": int(same["not_finite"].sum()),
            }
        )  # fmt: skip
    return frame(rows, CASES)


def decisions_of(done: pd.DataFrame) -> dict[tuple[int, bool], int]:
    """{(iterations, converged): number of the solves `done`}, fewest iterations first."""
    known = done[np.isfinite(done["iterations"]) & np.isfinite(done["converged"])]
    taken = zip(known["iterations"].astype(int).tolist(), (known["converged"] == 1).tolist(), strict=True)
    return dict(sorted(Counter(taken).items()))


def decisions(solves: Solves) -> pd.DataFrame:
    """A row per family; columns DECISIONS. `changed`: whether its complete solves took different numbers of iterations,
    or only some converged; `sample_decisions` {iterations: samples of the drift study}; `samples_changed`: whether
    samples of one case differ."""
    rows = []
    for family, same in solves.solves.groupby("family", sort=False):
        done = same[same["complete"]]
        taken = decisions_of(done)
        ends = solves.ends[(solves.ends["family"] == family) & np.isfinite(solves.ends["iterations"])]
        drawn = ends["iterations"].astype(int).value_counts().sort_index()
        # Compared within cases, since cases may differ for other reasons.
        apart = ends.groupby("case")["iterations"].nunique()
        rows.append(
            {
                "family": family, "solves": len(done), "cases": done["case"].nunique(), "decisions": taken,
                "changed": len(taken) > 1, "samples": len(ends), "sample_decisions": drawn.to_dict(),
                "samples_changed": bool((apart > 1).any()),
            }
        )  # fmt: skip
    return frame(rows, DECISIONS)


def reference(family: pd.DataFrame) -> Id | None:
    """The reference of a `family` (rows of SOLVES): the first complete solve with the strongest guarantee, or None."""
    done = family[family["complete"]]
    for level in reversed(LEVELS):
        same = done[done["guarantee"] == level]
        if len(same):
            return same["run"].iloc[0], int(same["repeat"].iloc[0])
    return None


def pairs(solves: Solves) -> pd.DataFrame:
    """A row per comparison of two complete solves; columns PAIRS.

    `against`: EACH_OTHER for repeats of one case, else the label of the reference. `compared`: number of iterations
    with a residual in both; `differing`: iterations that differ in bits, `first` the first of them (NaN: none).
    `largest`: largest relative difference of the residuals, at iteration `at`; `undefined`: number of differences with
    NaN on one side.
    """
    rows = []
    for family, same in solves.solves.groupby("family", sort=False):
        chosen = reference(same)
        for case, members in same[same["complete"]].groupby("case", sort=False):
            first, *others = [(run, int(repeat)) for run, repeat in members[["run", "repeat"]].values]
            compared = [(EACH_OTHER, first, other) for other in others]
            inside = chosen in (first, *others)
            compared += [] if inside or chosen is None else [(label(chosen), chosen, first)]
            for against, a, b in compared:
                where = {"family": family, "case": case, "against": against, "a_run": a[0], "a_repeat": a[1],
                         "b_run": b[0], "b_repeat": b[1]}  # fmt: skip
                rows.append(where | _parted(*drift(solves, a, b)))
    return frame(rows, PAIRS)


def drift(solves: Solves, a: Id, b: Id) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(iterations, whether the residuals differ in bits, |r_b - r_a| / |r_a|) at iterations recorded by both."""
    steps, one = solves.history(a)
    other_steps, other = solves.history(b)
    both, i, j = np.intersect1d(steps, other_steps, return_indices=True)
    return both, bits.differ(one[i], other[j]), bits.relative_difference(one[i], other[j])


def _parted(steps: np.ndarray, differ: np.ndarray, relative: np.ndarray) -> dict[str, float]:
    defined = ~np.isnan(relative)
    most = int(np.argmax(np.where(defined, relative, -1.0))) if defined.any() else None
    return {
        "compared": len(steps),
        "differing": int(differ.sum()),
        "first": float(steps[differ][0]) if differ.any() else np.nan,
        "largest": float(relative[most]) if most is not None else np.nan,
        "at": float(steps[most]) if most is not None and relative[most] > 0 else np.nan,
        "undefined": int((~defined).sum()),
    }
