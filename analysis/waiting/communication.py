"""Measures the time in collectives and exchanges, and finds the ranks for which others wait."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.waiting.waits import Waits
from analysis.waiting.within import between
from kernels.as_json import Column

COLLECTIVES = {
    "name": Column("str"), "calls": Column("float64", "of a rank, mean"),
    "mean_s": Column("float64", "mean over ranks, without local work inside", "s"),
    "share": Column("float64", "of the run time"),
    "late_s": Column("float64", "of this, waiting for ranks that came later", "s"),
    "rest_s": Column("float64", "the rest: sending, receiving, adding up", "s"),
    "late_share": Column("float64", "of `mean_s`"), "bytes": Column("int64", "of all ranks"),
    "gb_per_s": Column("float64", "bytes over the rest of all ranks", "GB/s"),
}  # fmt: skip
STRAGGLERS = {
    "rank": Column("int64"), "last": Column("int64", "of the groups, those in which others waited for it"),
    "groups": Column("int64", "collectives, and exchanges with its partners"),
    "caused_s": Column("float64", "how long all others waited for it together", "s"),
    "share": Column("float64", "of all such waiting"),
    "waited_s": Column("float64", "how long it waited itself", "s"),
    "region": Column("str", "why it was late"), "region_share": Column("float64", "of the time before it came late"),
}  # fmt: skip


def collectives(waits: Waits) -> pd.DataFrame:
    """One row per collective or exchange, most time first; columns COLLECTIVES.

    `calls` is the mean per rank. Seconds are means over ranks: `mean_s` of communication without local work inside,
    `late_s` of waiting for ranks that came later, and `rest_s` of the rest: sending, receiving, adding up. `share` is
    `mean_s` over the run time, `late_share` is `late_s` over `mean_s`. `bytes` are the bytes of all ranks; `gb_per_s`
    is bytes over the sum of `rest_s` over ranks (1e9 bytes per second and rank).
    """
    table = waits.table
    by = table.groupby("name", sort=False, observed=True)
    sums = by[["own", "late", "bytes"]].sum()
    mean, late = sums["own"] / waits.size / 1e9, sums["late"] / waits.size / 1e9
    rest = (mean - late).clip(lower=0.0)
    frame = pd.DataFrame(
        {
            "name": sums.index.astype("str"), "calls": (by.size() / waits.size).to_numpy(), "mean_s": mean.to_numpy(),
            "share": (mean * 1e9 / waits.wall).to_numpy(), "late_s": late.to_numpy(), "rest_s": rest.to_numpy(),
            "late_share": (late / mean).where(mean > 0).to_numpy(), "bytes": sums["bytes"].to_numpy(),
            "gb_per_s": (sums["bytes"] / (rest * waits.size) / 1e9).where(rest > 0).to_numpy(),
        }
    )  # fmt: skip
    return frame.sort_values(["mean_s", "name"], ascending=[False, True], ignore_index=True)[
        list(COLLECTIVES)
    ]


def stragglers(waits: Waits) -> pd.DataFrame:
    """One row per rank; columns STRAGGLERS.

    `groups` counts the rank's collectives and its exchanges with partners, `last` the groups in which some rank waited
    for this one. `caused_s` is the time that all others together waited for it, `share` its part of all such waiting,
    `waited_s` the time that it waited itself. `region` is the reason why it was late: the region with most of the
    rank's time since its last wait, weighted by the waiting that followed; `region_share` is the share of this region.
    """
    table = waits.table
    held = table[table["late"] > 0]
    by = held.groupby("who")
    every = np.arange(waits.size)
    caused = by["late"].sum().reindex(every, fill_value=0).to_numpy()
    total = caused.sum()
    why = _reasons(waits, held)
    groups = table.groupby("rank")["group"].nunique().reindex(every, fill_value=0).to_numpy()
    return pd.DataFrame(
        {
            "rank": every,
            "last": by["group"].nunique().reindex(every, fill_value=0).to_numpy(),
            "groups": groups,
            "caused_s": caused / 1e9,
            "share": caused / total if total else np.zeros(waits.size),
            "waited_s": held.groupby("rank")["late"].sum().reindex(every, fill_value=0).to_numpy() / 1e9,
            "region": [why.get(r, ("", np.nan))[0] for r in every.tolist()],
            "region_share": [why.get(r, ("", np.nan))[1] for r in every.tolist()],
        }
    )


def _reasons(waits: Waits, held: pd.DataFrame) -> dict[int, tuple[str, float]]:
    """{rank: (region, share)}: the main region of the late ranks of `held` between their last wait and their post."""
    table, reasons = waits.table, {}
    cost = held.groupby(["who", "group"], as_index=False)["late"].sum()
    for rank, own in cost.groupby("who"):
        rank = int(rank)
        posted = table["posted"].to_numpy()[waits.rows[own["group"].to_numpy(), rank]]
        ends = np.sort(table["end"].to_numpy()[waits.by_rank[rank]])
        k = np.searchsorted(ends, posted, side="right") - 1
        begin = np.where(k >= 0, ends[np.maximum(k, 0)], min(waits.begin[rank], posted.min()))
        order = np.argsort(posted, kind="stable")
        begin, posted, late = begin[order], posted[order], own["late"].to_numpy()[order]
        # Posts without a wait between them share the time before: only the first of them counts it.
        fresh = np.append(True, begin[1:] >= posted[:-1]) & (posted > begin)
        parts = between(waits, rank, begin[fresh], posted[fresh])
        if not len(parts):
            continue
        length = (posted - begin)[fresh]
        weight = parts["ns"] / length[parts["interval"]] * late[fresh][parts["interval"]]
        by_name = weight.groupby(parts["name"]).sum()
        reasons[rank] = (str(by_name.idxmax()), float(by_name.max() / by_name.sum()))
    return reasons
