"""Finds slow links between nodes: ranks on both sides of such a link wait longer than other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd

from analysis.waiting.waits import Waits
from kernels.as_json import Column

LINKS = {
    "nodes": Column("str", "the two nodes"), "waits": Column("int64"),
    "longer_s": Column("float64", "how much longer ranks on both sides wait than the rank that waits least", "s"),
    "share": Column("float64", "of the run time"), "slow": Column("bool"),
}  # fmt: skip
SLOW_TIMES = 5.0  # a slow link has at least this times the smallest excess of all links
SLOW_SHARE = 0.1  # a slow link has at least this excess, as a share of the run time


def links(waits: Waits, hosts: Sequence[str]) -> pd.DataFrame:
    """One row per pair of nodes whose ranks wait for each other, longest first; columns LINKS. Needs three nodes.

    The part of a wait after the last partner has begun is message time. The excess of a rank is its message time above
    the least message time in the same collective or exchange. If a link is slow, ranks on both its sides have an
    excess. A node has the smallest excess of its ranks. `longer_s` of a link is the smaller sum of its two nodes over
    the `waits`; `share` is its part of the run time. A link is `slow` if `longer_s` is SLOW_TIMES the smallest
    of all pairs, at least SLOW_SHARE of the run time, and above the error of the clocks. Time that all ranks wait
    alike, such as when every link of a node is slow, is in no excess. `hosts`: the node of each rank.
    """
    table, nodes = waits.table, list(dict.fromkeys(hosts))
    if len(nodes) < 3 or not len(table):
        return pd.DataFrame(columns=list(LINKS))
    at = np.array([nodes.index(host) for host in hosts])
    rest = (table["own"] - table["late"]).clip(lower=0).to_numpy(float)
    rest = np.where(waits.rows >= 0, rest[waits.rows], np.inf)
    excess = rest - rest.min(axis=1, keepdims=True)
    name_of = waits.name_of
    wrong = float((table["last"] - table["end"]).max())
    everywhere = np.ones((waits.size, len(nodes)), bool)
    rows = []
    for a, b in combinations(range(len(nodes)), 2):
        sides, count = np.zeros(2), 0
        for name in dict.fromkeys(name_of):
            across = everywhere
            if name in waits.partners:
                across = np.zeros_like(everywhere)
                across[np.arange(waits.size)[:, None], at[waits.partners[name]]] = True
            own = [np.flatnonzero((at == here) & across[:, there]) for here, there in ((a, b), (b, a))]
            if not all(map(len, own)):
                continue
            least = np.array([excess[name_of == name][:, ranks].min(axis=1) for ranks in own])
            known = np.isfinite(least).all(axis=0)
            sides, count = sides + least[:, known].sum(axis=1), count + int(known.sum())
        if count:
            rows.append((f"{nodes[a]}, {nodes[b]}", count, float(sides.min()) / 1e9))
    frame = pd.DataFrame(rows, columns=["nodes", "waits", "longer_s"])
    share = frame["longer_s"] * 1e9 / waits.wall
    slow = (
        (frame["longer_s"] >= SLOW_TIMES * frame["longer_s"].min())
        & (share >= SLOW_SHARE)
        & (frame["longer_s"] * 1e9 > wrong * frame["waits"])
    )
    frame = frame.assign(share=share, slow=slow)
    return frame.sort_values(["longer_s", "nodes"], ascending=[False, True], ignore_index=True)


def slow_links(frame: pd.DataFrame) -> list[str]:
    """A sentence on each slow link in `frame`, as `links` returns it."""
    return [
        f"the link between {row.nodes.replace(', ', ' and ')} is slow: ranks on both its sides wait "
        f"{row.longer_s:.3g} s longer for messages than other ranks in the same collectives and exchanges, "
        f"{row.share:.0%} of the run time; others wait for these ranks in turn"
        for row in frame[frame["slow"].astype(bool)].itertuples(index=False)
    ]
