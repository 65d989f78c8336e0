"""Computes variability by factor: the number of results, and their distances, for each ordering, kernel, rank count,
guarantee or application.

The comparison of runs of one cell shows variation from run to run. Compared with the reference, or with another level
of the factor, the algorithm differs too. The two kinds of comparison are never mixed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.ends import outcomes
from analysis.groups import FREE, IN_LABEL, factors, grouped
from analysis.load.frames import Frames
from analysis.pairs import EACH_OTHER, Pairs, pairs
from analysis.power import power_note
from analysis.runs import Id, ids
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
    cells      number of cells with two runs to compare
    runs       number of runs in them, or of runs that were compared with the reference
    distinct   number of results, summed over cells; all final fingerprints and values together make a result. NaN: not
               counted
    effective  the largest effective number of results of a cell
    pairs      number of pairs of runs; `differing` of them differ in any name at the last step
    maxima     over pairs and names: |V_s|, V_ermv, V_c, ULP; NaN: no name has this metric
    bound      if no run differs: the mean of p over runs is below it at 95 %; `note` has it in words
    """
    runs = with_levels(grouped(frames.runs), factor)
    runs = runs[runs["complete"]]
    app = runs.drop_duplicates("cell").set_index("cell")["app"]
    level = np.full(len(frames.places), "", object)
    level[[frames.places[key] for key in ids(runs)]] = runs["level"]
    found: dict[tuple[str, str, str], Largest] = {}
    for each in pairs(frames, against) if compared is None else compared:
        for at, comparison, chosen in _by_level(each, level, factor):
            found.setdefault((app[each.cell], at, comparison), Largest()).add(each, chosen, level == at)
    rows = []
    for (name, at), members in runs.groupby(["app", "level"], sort=False):
        where = {"app": name, "level": at}
        own = found.get((name, at, EACH_OTHER), Largest())
        rows.append(where | _each_other(frames, members, own))
        for comparison in (f"other {factor}", REFERENCE):
            if some := found.get((name, at, comparison)):
                rows.append(where | {"against": comparison} | _against(some, comparison))
    return pd.DataFrame(rows, columns=BY_FACTOR)


def _by_level(each: Pairs, level: np.ndarray, factor: str) -> Iterator[tuple[str, str, np.ndarray]]:
    """Yields (level, kind of comparison, mask of its pairs: bool (pairs,)) of `each`; `level` of all runs by place."""
    codes, levels = pd.factorize(level)
    a, b = codes[each.a], codes[each.b]
    if each.against != EACH_OTHER:
        for code in np.unique(b).tolist():
            yield levels[code], REFERENCE, b == code
        return
    for code in np.union1d(a, b).tolist():
        for comparison, chosen in (
            (EACH_OTHER, (a == code) & (b == code)), (f"other {factor}", (a == code) != (b == code)),
        ):  # fmt: skip
            if chosen.any():
                yield levels[code], comparison, chosen


@dataclass
class Largest:
    """The largest METRICS of pairs of runs, accumulated by `add` name by name.

    `pairs`: by cell, each pair as (place of one run) x (number of runs) + (place of the other). `differing`: the pairs
    that differ in some name. `runs`: places of the level's runs in these pairs. `compared`: places of the runs that
    were compared with the reference."""

    metrics: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("v_s", "v_ermv", "v_c", "max_ulp"), np.nan)
    )
    undefined: int = 0
    pairs: dict[str, np.ndarray] = field(default_factory=dict)
    differing: dict[str, np.ndarray] = field(default_factory=dict)
    runs: set[int] = field(default_factory=set)
    compared: set[int] = field(default_factory=set)

    def add(self, each: Pairs, chosen: np.ndarray, of_level: np.ndarray) -> None:
        """Adds the `chosen` pairs of `each`; `of_level`: a mask of the places whose runs have the level."""
        metrics = each.metrics
        for key in self.metrics:
            values = np.abs(metrics[key][chosen])
            if not np.isnan(values).all():
                self.metrics[key] = float(np.fmax(self.metrics[key], np.nanmax(values)))
        self.undefined += int(metrics["undefined"][chosen].sum())
        a, b = each.a[chosen], each.b[chosen]
        keys = a.astype(np.int64) * len(of_level) + b
        _join(self.pairs, each.cell, keys)
        _join(self.differing, each.cell, keys[metrics["v_c"][chosen] > 0])
        both = np.unique(np.concatenate([a, b]))
        self.runs.update(both[of_level[both]].tolist())
        self.compared.update(np.unique(b).tolist())

    def columns(self) -> dict:
        """The columns of BY_FACTOR that these pairs determine."""
        return {
            "pairs": sum(map(len, self.pairs.values())), "differing": sum(map(len, self.differing.values())),
            "v_s_max": self.metrics["v_s"], "v_ermv_max": self.metrics["v_ermv"], "v_c_max": self.metrics["v_c"],
            "ulp_max": self.metrics["max_ulp"], "undefined": self.undefined,
        }  # fmt: skip


def _join(known: dict[str, np.ndarray], cell: str, keys: np.ndarray) -> None:
    before = known.get(cell, keys[:0])
    if not np.array_equal(before, keys):  # usually all names have the same pairs
        known[cell] = np.union1d(before, keys)


def with_levels(runs: pd.DataFrame, factor: str) -> pd.DataFrame:
    """`runs` (grouped) with the column `level`, the level of `factor` as text.

    The kernel is the rest of the method, without guarantee, ordering, ownership, device and rank count: its factors in
    which runs of the app differ. Raises ValueError for an unknown factor."""
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


def _each_other(frames: Frames, members: pd.DataFrame, own: Largest) -> dict:
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
    same_bits = cells > 0 and counts == cells and whole
    if not cells:
        note = _not_compared(members)
    elif not whole:
        note = "records are missing: not comparable"
    else:
        note = power_note(runs) if same_bits else ""
    return {
        "against": EACH_OTHER, "cells": cells, "runs": runs, "distinct": counts if cells else np.nan,
        "effective": most, **own.columns(), "bound": bound(runs) if same_bits else np.nan, "note": note,
    }  # fmt: skip


def _not_compared(members: pd.DataFrame) -> str:
    """The reason why no two of these runs were compared with each other."""
    most = members.groupby("cell").size().max()
    if most == 1:
        return f"{len(members)} run{'s' * (len(members) != 1)}, no two of one cell: not compared"
    return f"{most} runs of one cell recorded no result that all of them have: not compared"


def _against(some: Largest, comparison: str) -> dict:
    """The columns of BY_FACTOR after `against`, for pairs in which one run is of another level or the reference."""
    runs = len(some.compared if comparison == REFERENCE else some.runs)
    same_bits = not any(map(len, some.differing.values()))
    return {
        "cells": len(some.pairs), "runs": runs, "distinct": np.nan, "effective": np.nan, **some.columns(),
        "bound": bound(runs) if same_bits else np.nan, "note": power_note(max(runs, 2)) if same_bits else "",
    }  # fmt: skip
