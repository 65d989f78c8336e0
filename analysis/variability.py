"""Measures differences between runs at their end: distinct outcomes, the published metrics, and the bound on the
probability of a difference if none was seen."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd

from analysis.divergence.among import among
from analysis.divergence.kinds import TABLES
from analysis.ends import ends, names
from analysis.groups import grouped
from analysis.load.frames import Frames
from analysis.pairs import EACH_OTHER, Pairs, pairs
from analysis.runs import Id, ids
from kernels.bits import bound

SUMMARIES = (
    "v_s_median",
    "v_s_max",
    "v_ermv_mean",
    "v_ermv_max",
    "v_c_mean",
    "v_c_max",
    "ulp_mean",
    "ulp_max",
)
VARIABILITY = ["group", "cell", "ranks", "name", "kind", "step", "against", "runs", "distinct",
               "effective", "pairs", *SUMMARIES, "undefined", "bound"]  # fmt: skip


def effective(counts: list[int]) -> float:
    """The effective number of outcomes, 1 / sum p_k^2: 1 if all are equal, the number of runs if all differ."""
    p = np.array(counts) / sum(counts)
    return float(1 / (p * p).sum())


def variability(
    frames: Frames, against: Id | None = None, compared: Iterable[Pairs] | None = None
) -> pd.DataFrame:
    """One row per (group, cell, name, against): `runs`, `distinct` bit patterns, `effective` outcomes, and `pairs`;
    over these the median and maximum of |V_s|, mean and maximum of V_ermv, V_c and ULP.

    `bound` is set if no difference was seen and no run lacks records that it must have: the probability of a difference
    is below it at 95 % confidence. `compared` is the result of `pairs`, if the caller has it.
    """
    compared = pairs(frames, against) if compared is None else compared
    of: dict[tuple[str, str, str], dict[str, list[Pairs]]] = {}
    for own in compared:
        of.setdefault((own.cell, own.name, own.kind), {}).setdefault(own.against, []).append(own)
    runs = grouped(frames.runs)
    runs = runs[runs["complete"]]
    rows = []
    for (group, cell), members in runs.groupby(["group", "cell"], sort=False):
        whole = comparable(frames, ids(members))
        for table in TABLES:
            for name in names(frames, table):
                last = ends(frames, table, name, ids(members))
                if last is None or not last.alike:
                    continue
                counts = last.counts
                by_reference: dict[str, list[Pairs]] = {EACH_OTHER: []} | of.get((cell, name, table), {})
                for against_, some in by_reference.items():
                    count = sum(map(len, some))
                    same = whole and count and not any(each.differing for each in some)
                    tries = len(members) if against_ == EACH_OTHER else count
                    rows.append(
                        {
                            "group": group, "cell": cell, "ranks": sorted(set(members["size"])),
                            "name": name, "kind": table, "step": last.step, "against": against_,
                            "runs": len(members), "distinct": len(counts), "effective": effective(counts),
                            "pairs": count, **_summary(some),
                            "bound": bound(tries) if same else np.nan,
                        }
                    )  # fmt: skip
    return pd.DataFrame(rows, columns=VARIABILITY)


def comparable(frames: Frames, runs: list[Id]) -> bool:
    """True if none of `runs`, which are judged against each other, lacks records that it must have."""
    return all(comparison.comparable for comparison in among(frames, runs).comparisons)


def _summary(some: list[Pairs]) -> dict[str, float]:
    metrics = [each.metrics for each in some]

    def column(key: str) -> pd.Series:
        return pd.Series(np.concatenate([np.empty(0), *(own[key] for own in metrics)]))

    size, v_ermv, v_c = column("v_s").abs(), column("v_ermv"), column("v_c")
    return {
        "v_s_median": size.median(), "v_s_max": size.max(),
        "v_ermv_mean": v_ermv.mean(), "v_ermv_max": v_ermv.max(),
        "v_c_mean": v_c.mean(), "v_c_max": v_c.max(),
        "ulp_mean": column("mean_ulp").mean(), "ulp_max": column("max_ulp").max(),
        "undefined": int(column("undefined").sum()),
    }  # fmt: skip
