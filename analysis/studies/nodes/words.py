"""Sentences and tables on runs over several nodes, for the terminal and for the report."""

from __future__ import annotations

import pandas as pd

from analysis.page.sections import Shown, Table, lines_of
from analysis.studies.nodes.crossed import Known, OverNodes
from analysis.verdict import counted

LISTED = 4  # most nodes in a sentence
UNITS = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def size(nbytes: float) -> str:
    """`12.6 MB`, with 1 MB = 10^6 bytes."""
    for unit, name in UNITS:
        if nbytes >= 0.9995 * unit:
            return f"{nbytes / unit:.3g} {name}"
    return f"{nbytes:.0f} B"


def sentence(of: OverNodes, placed: pd.DataFrame) -> str:
    """Placement and traffic of a run: `8 ranks on 4 nodes: n1 0-1; n2 2-3. 25.2 MB crossed between nodes, 20 MB of it
    in halo.` `placed`: its rows of the table `nodes`."""
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
        texts.append("The traces state no traffic between nodes.")
    if of.unknown:
        least = sum(float(flow.least.sum()) for flow in of.unknown)
        names = [flow.region for flow in of.unknown]
        listed = ", ".join(names[:LISTED]) + (
            f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
        )
        amount = f"at least {size(least)}" if least else "an unknown amount"
        texts.append(f"Between unknown nodes, {amount} crossed ({listed}).")
    return " ".join(texts)


PLACED = (
    Shown("node", lambda row: row.node),
    Shown("ranks", lambda row: row.ranks),
    Shown("sent to others", lambda row: size(row.sent), number=True),
    Shown("received", lambda row: size(row.received), number=True),
    Shown("inside the node", lambda row: size(row.inside), number=True),
)
CROSSED = (
    Shown("region", lambda row: row.region),
    Shown("kind", lambda row: row.kind),
    Shown("sums by", lambda row: row.ordering or "-"),
    Shown("calls", lambda row: row.calls, number=True),
    Shown("between nodes", lambda row: _between(row), number=True),
    Shown("inside nodes", lambda row: size(row.inside) if row.known else "not known", number=True),
)
# By position: `from` is a keyword of Python.
PASSED = (
    Shown("from", lambda row: row[1]),
    Shown("to", lambda row: row[2]),
    Shown("sent", lambda row: size(row.bytes), number=True),
    Shown("rate seen", lambda row: f"{size(1e6 * row.mb_per_s)}/s" if row.fastest else "calls too short", number=True),
    Shown("in", lambda row: row.fastest),
)  # fmt: skip


def all_tables(known: Known) -> list[tuple[str, Table]]:
    """The placement, the traffic by region, and the traffic between nodes, of each run."""
    shown = []
    for of in known.runs:
        placed, traffic, regions = (
            table[table["run"] == of.run] for table in (known.nodes, known.traffic, known.regions)
        )
        regions = regions.sort_values("between", ascending=False, kind="stable")
        shown.append((f"Nodes of {of.run}", lines_of(placed, PLACED)))
        shown.append((f"Traffic by region in {of.run}", lines_of(regions, CROSSED)))
        if len(traffic):
            shown.append((f"From node to node in {of.run}", lines_of(traffic, PASSED)))
    return shown


def _between(row) -> str:
    if row.known:
        return size(row.between)
    return f"at least {size(row.at_least)}" if row.at_least else "not known"
