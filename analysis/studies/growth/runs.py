"""Growth of the difference between runs: the law of `growth.law` for every cell and name.

Samples are the runs of a cell, each compared with its first run. They share that reference, so the interval of the rate
holds for this reference only.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from analysis.divergence.steps import growths
from analysis.groups import grouped
from analysis.load.frames import Frames
from analysis.runs import ids, label, samples
from analysis.studies.contract import frame
from analysis.studies.growth import TOLERANCE
from analysis.studies.growth.law import LAW, law
from analysis.variability import comparable
from kernels.as_json import Column

HALF = (
    0.5  # tolerance for fingerprints: the fraction of blocks, since fingerprints give no size of a difference
)

PLACE = {"group": Column("str"), "cell": Column("str"), "reference": Column("str")}
GROWN = {
    **PLACE, "runs": Column("int64", "complete runs of the cell"),
    "comparable": Column("bool", "no run of the cell lacks records"),
    "run": Column("str"), "repeat": Column("int64"), "step": Column("int64"),
    "kind": Column("str", "`values` or `fingerprints`, whose elements are blocks"), "name": Column("str"),
    "elements": Column("int64"), "differing": Column("int64"), "fraction": Column("float64", "differing / elements"),
    "max_relative": Column("float64", "largest relative difference of values"),
    "max_ulp": Column("float64", "", "ULP"), "undefined": Column("int64", "differences that are NaN"),
}  # fmt: skip
LAWS = {
    **PLACE, "name": Column("str"), "kind": GROWN["kind"], **LAW,
    "efold": Column("float64", "steps in which it grows e-fold"),
    "tenfold": Column("float64", "steps in which it grows tenfold"),
}  # fmt: skip


def cell_growths(frames: Frames, cells: Collection[str] | None = None) -> pd.DataFrame:
    """The `divergence.growths` of the complete runs of each cell against its first; columns GROWN.

    `reference`: that first run; `runs`: number of complete runs of the cell; `comparable`: whether none of them lacks
    records. With `cells`, only of these. Cells with one complete run have no rows, nor have runs that compare variants,
    since their steps are samples."""
    runs = grouped(frames.runs)
    runs = runs[runs["complete"] & ~samples(runs)]
    pieces = []
    for (group, cell), members in runs.groupby(["group", "cell"], sort=False):
        if len(members) < 2 or (cells is not None and cell not in cells):
            continue
        first, *others = ids(members)
        own = growths(frames, first, others)
        place = {"group": group, "cell": cell, "reference": label(first), "runs": len(members)}
        pieces.append(own.assign(**place, comparable=comparable(frames, [first, *others])))
    return frame(pd.concat(pieces, ignore_index=True) if pieces else [], GROWN)


def laws(differences: pd.DataFrame, tolerance: float = TOLERANCE) -> pd.DataFrame:
    """A row per cell and name that differs anywhere in `differences` from `cell_growths`; columns LAWS.

    For values, the law describes the largest relative difference per step, with `tolerance`. For fingerprints without
    values of the same name, it describes the fraction of differing blocks, with HALF. `efold`, `tenfold`: steps in
    which the difference grows e-fold and tenfold; NaN without a rate above 0.
    """
    rows = []
    for (group, cell), same in differences.groupby(["group", "cell"], sort=False):
        valued = set(same.loc[same["kind"] == "values", "name"])
        for (kind, name), some in same.groupby(["kind", "name"], sort=False):
            if not some["differing"].any() or (kind == "fingerprints" and name in valued):
                continue
            what, at = ("max_relative", tolerance) if kind == "values" else ("fraction", HALF)
            table = some.pivot(index="step", columns=["run", "repeat"], values=what).sort_index()
            where = {"group": group, "cell": cell, "reference": some["reference"].iloc[0], "name": name}
            rows.append(where | {"kind": kind} | law(table, at))
    fitted = frame(rows, LAWS)
    rate = fitted["rate"].where(fitted["rate"] > 0)
    return fitted.assign(efold=1 / rate, tenfold=np.log(10) / rate)


def equal_cells(differences: pd.DataFrame) -> dict[str, int]:
    """{cell: its complete runs} for the cells of `differences`, from `cell_growths`, without any difference."""
    by = differences.groupby("cell", sort=False)
    same = (by["differing"].sum() == 0) & by["comparable"].all()
    return {cell: int(runs) for cell, runs in by["runs"].first()[same].items()}


def alone(frames: Frames) -> list[str]:
    """The cells with fewer than two complete runs, which have no comparison."""
    runs = grouped(frames.runs)
    counts = runs[~samples(runs)].groupby("cell", sort=False)["complete"].sum()
    return counts.index[counts < 2].tolist()
