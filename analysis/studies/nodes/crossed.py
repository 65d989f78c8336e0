"""Placement of ranks on nodes, and traffic and rates between nodes, as far as the traces state them."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load.frames import Frames
from analysis.page.text import spans
from analysis.studies.contract import frame
from analysis.verdict import counted
from kernels.as_json import Column
from miniapps.system.scope import AMONG, OF_RANKS
from miniapps.trace import RankTrace, TraceError
from miniapps.trace.schema import COLLECTIVE, EXCHANGE
from miniapps.trace.traffic import Flow, flows, hosts

NODES = {
    "run": Column("str"), "node": Column("str", "host name"), "ranks": Column("str", "as `0-3, 7`"),
    "count": Column("int64", "ranks"), "sent": Column("int64", "to other nodes, as far as known", "bytes"),
    "received": Column("int64", "from other nodes", "bytes"), "inside": Column("int64", "between its ranks", "bytes"),
}  # fmt: skip
TRAFFIC = {
    "run": Column("str"), "from": Column("str"), "to": Column("str"), "bytes": Column("int64"),
    "mb_per_s": Column("float64", "10^6 bytes per second: bytes of a region over the time of its slowest rank"),
    "fastest": Column("str", "the region with the highest rate; empty without a rate"),
}  # fmt: skip
REGIONS = {
    "run": Column("str"), "region": Column("str"), "kind": Column("str"),
    "ordering": Column("str", "of a reduction, else empty"), "calls": Column("int64"),
    "known": Column("bool", "whether senders and receivers are known"),
    "between": Column("float64", "between nodes; null if unknown", "bytes"),
    "inside": Column("float64", "inside nodes; null if unknown", "bytes"),
    "at_least": Column("float64", "lower bound of the bytes that left nodes", "bytes"),
}  # fmt: skip
LONG = 2**16  # least bytes of a call from node to node for a rate of the link
TIMED = (COLLECTIVE, EXCHANGE)  # kinds of regions whose time is that of their messages


@dataclass(frozen=True)
class OverNodes:
    """One run: the `nodes` (host names, in the order of their first ranks), the ranks `on` each, the `flows` of each
    region, and the `seconds` of the slowest rank in each region."""

    run: str
    nodes: list[str]
    on: list[list[int]]
    flows: list[Flow]
    seconds: dict[str, float]

    @property
    def pairs(self) -> np.ndarray:
        """(nodes, nodes) known bytes from node to node."""
        known = [flow.pairs for flow in self.flows if flow.pairs is not None]
        return np.sum([np.zeros((len(self.nodes), len(self.nodes))), *known], axis=0)

    @property
    def crossed(self) -> float:
        """Known bytes between nodes."""
        pairs = self.pairs
        return float(pairs.sum() - np.trace(pairs))

    @property
    def unknown(self) -> list[Flow]:
        """Flows without known senders and receivers that may have crossed between nodes."""
        return [flow for flow in self.flows if flow.pairs is None and flow.most.any()]


@dataclass(frozen=True)
class Known:
    """`runs` over several nodes; `alone`: number of runs on one node; `notes`: sentences on runs left out or
    unreadable; and the tables NODES, TRAFFIC and REGIONS, in bytes of a whole run with all repeats."""

    runs: list[OverNodes]
    alone: int
    notes: list[str]
    nodes: pd.DataFrame
    traffic: pd.DataFrame
    regions: pd.DataFrame


def between_nodes(frames: Frames, most: int | None = None) -> Known:
    """The traffic of the runs of `frames`, each launch once; of at most `most` runs over several nodes."""
    looked: list[OverNodes] = []
    notes: list[str] = []
    alone = left = 0
    for row in frames.runs.drop_duplicates("run").itertuples(index=False):
        if not _several(row.environment):
            alone += 1
        elif most is not None and len(looked) == most:
            left += 1
        else:
            try:
                looked.append(over_nodes(frames, row.run, row.path))
            except (TraceError, OSError) as error:
                notes.append(f"{row.run}: {error}")
    if left:
        notes.append(
            f"{counted(left, 'more run')} over several nodes not shown; `python -m analysis nodes` shows all"
        )
    return Known(looked, alone, notes, *_tables(looked))


def over_nodes(frames: Frames, run: str, path: str) -> OverNodes:
    """The placement and traffic of one run. Raises TraceError for missing ranks, OSError for unreadable files."""
    traces = _traces(frames, run, Path(path))
    names = hosts(traces)
    nodes = list(dict.fromkeys(names))
    places = [nodes.index(name) for name in names]
    on = [[rank for rank, place in enumerate(places) if place == node] for node in range(len(nodes))]
    events = frames.events
    by_rank = events[(events["run"] == run).to_numpy()].groupby(["rank", "name"], observed=True)
    sums = by_rank[["count", "bytes", "total_ns"]].sum()
    totals = {
        (int(rank), str(name)): (int(count), float(nbytes))
        for (rank, name), count, nbytes in zip(sums.index, sums["count"], sums["bytes"], strict=True)
    }
    slowest = sums["total_ns"].groupby("name", observed=True).max() / 1e9
    seconds = {str(name): float(each) for name, each in slowest.items()}
    return OverNodes(run, nodes, on, flows(traces, places, len(nodes), totals), seconds)


def _traces(frames: Frames, run: str, path: Path) -> list[RankTrace]:
    """The attributes of each rank of a run, and the choices of rank 0. Raises TraceError for missing ranks."""
    own = frames.runs[(frames.runs["run"] == run).to_numpy()].iloc[0]
    choices = frames.of("choices", run, int(own["repeat"]))
    chosen = {key: choices[key].cat.codes.to_numpy() for key in ("name", "choice")}
    reductions = json.loads(own["reductions"])
    if len(known := frames.stated(run)) < own["size"]:
        missing = own["size"] - len(known)
        raise TraceError(
            f"{path}: {missing} of {own['size']} ranks are missing; copy the whole directory again"
        )
    return [
        RankTrace(
            path, stated | {"environment": {"node": stated["node"]}} | ({} if rank else {"reductions": reductions}),
            frames.names, {} if rank else {"choices": chosen},
        )
        for rank, stated in enumerate(known)
    ]  # fmt: skip


def _several(environment: str) -> bool:
    node = json.loads(environment).get("node", "")
    return AMONG in node or node.endswith(OF_RANKS)


def rates(of: OverNodes) -> tuple[np.ndarray, np.ndarray]:
    """((nodes, nodes) bytes per second from node to node in the region with the highest rate, (nodes, nodes) names of
    these regions); NaN if calls send fewer than LONG bytes. A link is at least as fast, since ranks also wait in their
    regions."""
    best = np.full((len(of.nodes), len(of.nodes)), np.nan)
    where = np.full(best.shape, "", object)
    for flow in of.flows:
        took = of.seconds.get(flow.region, 0.0)
        if flow.pairs is None or flow.kind not in TIMED or took <= 0:
            continue
        seen = np.where(flow.pairs >= LONG * flow.calls, flow.pairs / took, np.nan)
        faster = ~np.isnan(seen) & ~(seen <= best)
        best[faster], where[faster] = seen[faster], flow.region
    np.fill_diagonal(best, np.nan)
    return best, where


def _tables(runs: list[OverNodes]) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    on_nodes, traffic, regions = [], [], []
    for of in runs:
        pairs, (speed, fastest) = of.pairs, rates(of)
        for i, (node, ranks) in enumerate(zip(of.nodes, of.on, strict=True)):
            sent, received = pairs[i].sum() - pairs[i, i], pairs[:, i].sum() - pairs[i, i]
            on_nodes.append(
                (of.run, node, spans(ranks), len(ranks), int(sent), int(received), int(pairs[i, i]))
            )
        for i, j in zip(*np.nonzero(pairs), strict=True):
            if i != j:
                mb_per_s = speed[i, j] / 1e6
                traffic.append((of.run, of.nodes[i], of.nodes[j], int(pairs[i, j]), mb_per_s, fastest[i, j]))
        for flow in of.flows:
            between = inside = math.nan
            if flow.pairs is not None:
                inside = float(np.trace(flow.pairs))
                between = float(flow.pairs.sum()) - inside
            known = flow.pairs is not None
            row = (of.run, flow.region, flow.kind, flow.ordering, flow.calls, known, between, inside)
            regions.append((*row, float(flow.least.sum())))
    return frame(on_nodes, NODES), frame(traffic, TRAFFIC), frame(regions, REGIONS)
