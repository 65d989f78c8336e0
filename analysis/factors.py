"""Variability by factor: how many results the runs of each application, ordering, kernel, rank count or guarantee have,
and how far apart they are. Runs of one cell against each other are variation from run to run; against the reference,
and on other levels of the factor, the algorithm changed too. The two are never mixed."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd

from analysis.ends import outcomes
from analysis.groups import FREE, IN_LABEL, factors, grouped
from analysis.load.frames import Frames
from analysis.pairs import EACH_OTHER, Pairs, frame_of, pairs
from analysis.power import power_note
from analysis.runs import Id, ids, label
from analysis.variability import comparable, effective
from kernels.bits import bound

FACTORS = ("ordering", "kernel", "ranks", "guarantee", "app")
REFERENCE = "the reference"
NO_KERNEL = (*IN_LABEL, *FREE, "fault", "replay", "device")  # effects of options that choose no kernel
DEFAULT = "no factor of the method differs"

BY_FACTOR = ["app", "level", "against", "cells", "runs", "distinct", "effective", "pairs", "differing", "v_s_max",
             "v_ermv_max", "v_c_max", "ulp_max", "undefined", "bound", "note"]  # fmt: skip


def by_factor(
    frames: Frames, factor: str, against: Id | None = None, compared: list[Pairs] | None = None
) -> pd.DataFrame:
    """One row per app, level of `factor` (one of FACTORS) and kind of comparison; columns BY_FACTOR.

    against    EACH_OTHER: runs of one cell and one level; REFERENCE: runs against the reference of their problem; or
               `other LEVELs`: runs of one cell on different levels (rank counts under `layout`)
    cells      how many cells have two runs to compare; `runs` in them (of EACH_OTHER), or compared with the reference
    distinct   results, summed over cells: of every final fingerprint and value together; NaN where not counted
    effective  the largest effective number of results of a cell
    pairs      pairs of runs, of which `differing` differ in any name at the last step
    maxima     over pairs and names: |V_s|, V_ermv, V_c, ULP; NaN where there is nothing that has them
    bound      where no run differs: the mean of p over runs is below it at 95 %; `note` says it in words
    """
    runs = with_levels(grouped(frames.runs), factor)
    runs = runs[runs["complete"]]
    table = frame_of(pairs(frames, against) if compared is None else compared)
    level = {label(key): name for key, name in zip(ids(runs), runs["level"], strict=True)}
    app = runs.drop_duplicates("cell").set_index("cell")["app"]
    table = table.assign(
        app=table["cell"].map(app), a_level=table["a"].map(level), level=table["b"].map(level)
    )
    own = table["against"] == EACH_OTHER
    other = own & (table["a_level"] != table["level"])
    table["comparison"] = np.where(other, f"other {factor}", np.where(own, EACH_OTHER, REFERENCE))
    rows = []
    for (name, at), members in runs.groupby(["app", "level"], sort=False):
        here = table[(table["app"] == name) & ((table["level"] == at) | (other & (table["a_level"] == at)))]
        rows.append({"app": name, "level": at, **_each_other(frames, members, here)})
        for comparison in (f"other {factor}", REFERENCE):
            if len(some := here[here["comparison"] == comparison]):
                rows.append({"app": name, "level": at, "against": comparison, **_against(some, at)})
    return pd.DataFrame(rows, columns=BY_FACTOR)


def with_levels(runs: pd.DataFrame, factor: str) -> pd.DataFrame:
    """`runs` (grouped) with the column `level`, the level of `factor` as text. The kernel is what is left of the
    method without guarantee, ordering, ownership, device and rank count, as far as runs of the app differ in it.
    Raises ValueError for another factor."""
    plain = {"ordering": "ordering", "guarantee": "guarantee", "app": "app"}
    if factor in plain:
        return runs.assign(level=runs[plain[factor]])
    if factor == "ranks":
        return runs.assign(level=runs["size"].astype("str"))
    if factor != "kernel":
        raise ValueError(f"no factor {factor}; there are: {', '.join(FACTORS)}")
    methods = [
        factors(method, options, NO_KERNEL)
        for method, options in zip(runs["method"], runs["options"], strict=True)
    ]
    level = pd.Series("", index=runs.index)
    for _, same in runs.assign(place=range(len(runs))).groupby("app", sort=False):
        own = [methods[i] for i in same["place"]]
        keys = list(dict.fromkeys(key for method in own for key in method))
        telling = [key for key in keys if len({json.dumps(method.get(key)) for method in own}) > 1]
        texts = [", ".join(f"{key}={method.get(key)}" for key in telling) or DEFAULT for method in own]
        level.loc[same.index] = texts
    return runs.assign(level=level)


def _each_other(frames: Frames, members: pd.DataFrame, here: pd.DataFrame) -> dict:
    """The columns of BY_FACTOR after the level, for runs of one level, cell by cell."""
    counts, runs, most = 0, 0, np.nan
    cells, whole = 0, True
    for _, same in members.groupby("cell", sort=False):
        results = outcomes(frames, same) if len(same) > 1 else None
        if results is None:
            continue
        shares = pd.Series(results).value_counts().tolist()
        whole &= comparable(frames, ids(same))
        cells, counts, runs = cells + 1, counts + len(shares), runs + len(same)
        most = np.fmax(most, effective(shares))
    some = here[here["comparison"] == EACH_OTHER]
    same_bits = cells > 0 and counts == cells and whole
    if not cells:
        note = _not_compared(members)
    elif not whole:
        note = "records are missing: not comparable"
    else:
        note = power_note(runs) if same_bits else ""
    return {
        "against": EACH_OTHER, "cells": cells, "runs": runs, "distinct": counts if cells else np.nan,
        "effective": most, **_largest(some), "bound": bound(runs) if same_bits else np.nan, "note": note,
    }  # fmt: skip


def _not_compared(members: pd.DataFrame) -> str:
    """Why no two of these runs were compared with each other."""
    most = members.groupby("cell").size().max()
    if most == 1:
        return f"{len(members)} run{'s' * (len(members) != 1)}, no two of one cell: not compared"
    return f"{most} runs of one cell recorded no result that all of them have: not compared"


def _against(some: pd.DataFrame, at: str) -> dict:
    """The same for pairs `some` in which one run is of another level or the reference."""
    own = pd.concat([some.loc[some["level"] == at, "b"], some.loc[some["a_level"] == at, "a"]])
    runs = own.nunique() if some["comparison"].iloc[0] != REFERENCE else some["b"].nunique()
    same_bits = not (some["v_c"] > 0).any()
    return {
        "cells": some["cell"].nunique(), "runs": runs, "distinct": np.nan, "effective": np.nan, **_largest(some),
        "bound": bound(runs) if same_bits else np.nan, "note": power_note(max(runs, 2)) if same_bits else "",
    }  # fmt: skip


def _largest(some: pd.DataFrame) -> dict:
    changed = some.assign(changed=some["v_c"] > 0).groupby(["cell", "a", "b"])["changed"].any()
    return {
        "pairs": len(changed), "differing": int(changed.sum()), "v_s_max": some["v_s"].abs().max(),
        "v_ermv_max": some["v_ermv"].max(), "v_c_max": some["v_c"].max(), "ulp_max": some["max_ulp"].max(),
        "undefined": int(some["undefined"].sum()),
    }  # fmt: skip
