"""What runs over several nodes are in sentences and tables, for the terminal and for the report."""

from __future__ import annotations

import pandas as pd

from analysis.nodes.study import OverNodes, Study
from analysis.page.sections import Table
from analysis.verdict import counted

LISTED = 4  # nodes of a sentence
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(nbytes: float) -> str:
    """`12.6 MB`, of 10^6 bytes each."""
    for unit, name in UNITS:
        if nbytes >= 0.9995 * unit:
            return f"{nbytes / unit:.3g} {name}"
    return f"{nbytes:.0f} B"


def sentence(of: OverNodes, placed: pd.DataFrame) -> str:
    """Where a run was, and what crossed: `8 ranks on 4 nodes: n1 0-1, n2 2-3; 25.2 MB crossed, 20 MB of it in halo`.
    `placed`: its rows of the table `nodes`."""
    shown = [f"{row.node} {row.ranks}" for row in placed.head(LISTED).itertuples(index=False)]
    more = f" and {len(placed) - LISTED} more" if len(placed) > LISTED else ""
    where = f"{counted(int(placed['count'].sum()), 'rank')} on {len(placed)} nodes: {'; '.join(shown)}{more}."
    return f"{where} {_crossed(of)}"


def _crossed(of: OverNodes) -> str:
    by_region = {flow.region: float(flow.least.sum()) for flow in of.flows if flow.pairs is not None}
    region = max(by_region, key=by_region.__getitem__, default="")
    texts = []
    if of.crossed > 0:
        most = (
            f", {size(by_region[region])} of it in {region}"
            if by_region[region] < of.crossed
            else f" in {region}"
        )
        texts.append(f"{size(of.crossed)} crossed between nodes{most}.")
    elif not of.unknown:
        texts.append("Nothing that the traces know crossed between nodes.")
    if of.unknown:
        least = sum(float(flow.least.sum()) for flow in of.unknown)
        names = [flow.region for flow in of.unknown]
        listed = ", ".join(names[:LISTED]) + (
            f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        )
        amount = f"at least {size(least)}" if least else "how much is not known"
        texts.append(f"Also crossed, from which node to which is not known: {amount} ({listed}).")
    return " ".join(texts)


def all_tables(results: Study, frames: dict[str, pd.DataFrame]) -> list[tuple[str, Table]]:
    """Placement, what crossed by region, and the pairs of nodes, of each run."""
    shown = []
    for of in results.runs:
        placed, traffic, regions = (frames[name][frames[name]["run"] == of.run] for name in frames)
        rows: list[tuple[object, ...]] = [
            (row.node, row.ranks, size(row.sent), size(row.received), size(row.inside))
            for row in placed.itertuples(index=False)
        ]
        columns = ("node", "ranks", "sent to others", "received", "inside the node")
        shown.append((f"Nodes of {of.run}", Table(columns, rows, columns[2:])))
        shown.append((f"What crossed in {of.run}", _regions(regions)))
        if len(traffic):
            shown.append((f"From node to node in {of.run}", _traffic(traffic)))
    return shown


def _regions(regions: pd.DataFrame) -> Table:
    columns = ("region", "kind", "sums by", "calls", "between nodes", "inside nodes")
    rows = [
        (
            row.region, row.kind, row.ordering or "-", row.calls,
            size(row.between) if row.known else f"at least {size(row.at_least)}" if row.at_least else "not known",
            size(row.inside) if row.known else "not known",
        )
        for row in regions.sort_values("between", ascending=False, kind="stable").itertuples(index=False)
    ]  # fmt: skip
    return Table(columns, rows, columns[3:])


def _traffic(traffic: pd.DataFrame) -> Table:
    columns = ("from", "to", "sent", "rate seen", "in")
    rows = [
        (
            row[1],
            row[2],
            size(row.bytes),
            f"{size(1e6 * row.mb_per_s)}/s" if row.fastest else "calls too short",
            row.fastest,
        )
        for row in traffic.itertuples(index=False)
    ]
    return Table(columns, rows, columns[2:4])
