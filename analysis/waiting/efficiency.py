"""Efficiencies of one repeat, after the POP Centre of Excellence (pop-coe.eu, "POP standard metrics").

With useful time u_r of rank r, run time T, and run time T0 on a network without cost:

    parallel efficiency = mean u / T = load balance (mean u / max u) x communication efficiency (max u / T)
    communication efficiency = serialisation (max u / T0) x transfer (T0 / T)

(Rosas, Giménez and Labarta 2014). The losses are shares of the run time: (max u - mean u) / T to imbalance,
(T0 - max u) / T to serialisation, (T - T0) / T to transfer. With the parallel efficiency they add up to 1.
"""

from __future__ import annotations

import pandas as pd

from analysis.waiting.replay import replay, useful_times
from analysis.waiting.waits import Waits
from kernels.as_json import Column

EFFICIENCY = {
    "parallel": Column("float64", "load balance x communication"),
    "load_balance": Column("float64", "mean over largest useful time"),
    "communication": Column("float64", "largest useful time over run time"),
    "serialisation": Column("float64", "largest useful time over that on a network that costs nothing"),
    "transfer": Column("float64", "run time on a network that costs nothing over run time"),
    "lost_balance": Column("float64", "share of the run time"),
    "lost_serialisation": Column("float64", "share of the run time"),
    "lost_transfer": Column("float64", "share of the run time"),
    "useful_s": Column("float64", "of all ranks", "s"), "ideal_s": Column("float64", "on that network", "s"),
    "wall_s": Column("float64", "from the first event of any rank to the last", "s"), "waits": Column("int64"),
    "acausal": Column("int64", "waits that ended before a partner had begun, by its clock"),
    "acausal_ns": Column("int64", "by how much at most, which is how clocks disagree", "ns"),
}  # fmt: skip
AGAINST_BASE = {
    "computation": Column("float64", "useful time at the smallest rank count over that here"),
    "global": Column("float64", "parallel x computation"),
}


def efficiencies(waits: Waits) -> dict[str, float]:
    """The efficiencies of one repeat, by the keys of EFFICIENCY.

    `useful_s` is the sum over ranks, `ideal_s` is T0, `wall_s` the time from the first event of any rank to the last.
    `acausal` counts the waits that ended before a partner had posted, by its clock. `acausal_ns` is the largest such
    difference, a measure of how well the clocks agree."""
    useful, ideal, wall = useful_times(waits), float(replay(waits).max()), float(waits.wall)
    most, mean = float(useful.max()), float(useful.mean())
    early = (waits.table["last"] - waits.table["end"]).clip(lower=0)
    return {
        "parallel": _share(mean, wall),
        "load_balance": _share(mean, most),
        "communication": _share(most, wall),
        "serialisation": _share(most, ideal),
        "transfer": _share(ideal, wall),
        "lost_balance": _share(most - mean, wall),
        "lost_serialisation": _share(ideal - most, wall),
        "lost_transfer": _share(wall - ideal, wall),
        "useful_s": float(useful.sum()) / 1e9,
        "ideal_s": ideal / 1e9,
        "wall_s": wall / 1e9,
        "waits": len(waits.table),
        "acausal": int((early > 0).sum()),
        "acausal_ns": int(early.max()) if len(early) else 0,
    }


def against_base(table: pd.DataFrame) -> pd.DataFrame:
    """`table` with the columns AGAINST_BASE: `computation`, and `global` = parallel x computation.

    `table` has the columns `series`, `kind`, `size` and EFFICIENCY, one row per series and size, sizes ascending.
    `computation` is the useful time of all ranks at the smallest size over the useful time at this size; for weak
    scaling per rank.
    """
    per_rank = table["useful_s"] / table["size"]
    amount = table["useful_s"].where(table["kind"] == "strong", per_rank)
    base = amount.groupby(table["series"]).transform("first")
    computation = (base / amount).where(amount > 0)
    return table.assign(computation=computation, **{"global": table["parallel"] * computation})


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else float("nan")
