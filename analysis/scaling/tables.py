"""The scaling in words and tables, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.page.sections import Table
from analysis.page.text import interval, number
from analysis.scaling.study import Study

RANKS_SHOWN = 8  # of a table of ranks, those that matter most
REGIONS_SHOWN = 12
NO_BREAK = "\u00a0"  # a space that HTML keeps
METRICS = (
    (0, "global efficiency", "global"), (1, "parallel efficiency", "parallel"), (2, "load balance", "load_balance"),
    (2, "communication efficiency", "communication"), (3, "serialisation", "serialisation"),
    (3, "transfer", "transfer"), (1, "computation scaling", "computation"), (0, "lost to imbalance", "lost_balance"),
    (0, "lost to serialisation", "lost_serialisation"), (0, "lost to transfer", "lost_transfer"),
)  # fmt: skip


def all_tables(results: Study) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [*speedup_tables(results), *fit_tables(results), *efficiency_tables(results), *collective_tables(results),
            *straggler_tables(results), *link_tables(results), *path_tables(results)]  # fmt: skip


def exported(results: Study) -> dict[str, pd.DataFrame]:
    """The frames of `results` that are written as CSV, by name."""
    return {
        "points": results.points.drop(columns="apart"),
        "speedups": results.speedups,
        "fits": results.fits,
        **results.traced,
    }


def speedup_tables(results: Study) -> list[tuple[str, Table]]:
    """Times, speedups and efficiencies of series with several rank counts."""
    columns = ("series", "scaling", "ranks", "runs", "median, s", "95 % interval", "speedup", "95 % of it",
               "efficiency", "95 % of that")  # fmt: skip
    rows = [
        (
            row.series, row.kind, row.size, row.runs, number(row.median_s), interval(row.low_s, row.high_s),
            f"{row.speedup:.3g}", interval(row.speedup_low, row.speedup_high), f"{row.efficiency:.1%}",
            interval(row.efficiency_low, row.efficiency_high, "{:.1%}".format),
        )
        for row in results.speedups.itertuples(index=False)
    ]  # fmt: skip
    return [("Speedup", Table(columns, rows, columns[2:], by="series"))] if rows else []


def base_notes(results: Study) -> list[str]:
    """Sentences on the series whose base is not one rank."""
    bases = results.speedups[results.speedups["base"] > 1].drop_duplicates("series")
    return [
        f"{row.series}: the smallest run has {row.base} ranks, which count as perfectly used"
        for row in bases.itertuples(index=False)
    ]


def fit_tables(results: Study) -> list[tuple[str, Table]]:
    """All candidates for T(p), best first, or why there are none."""
    columns = ("series", "model of T(p)", "ΔAICc", "error", "parameters (95 %)", "holds for", "remark")
    rows = [
        (
            row.series, row.model or "none", number(row.delta), f"{row.error:.1%}" if row.error == row.error else "",
            row.parameters, row.range, row.remark,
        )
        for row in results.fits.itertuples(index=False)
    ]  # fmt: skip
    return [("Laws fitted to the run time", Table(columns, rows, columns[2:4], by="series"))] if rows else []


def efficiency_tables(results: Study) -> list[tuple[str, Table]]:
    """POP metrics of each series: rows are metrics, columns rank counts."""
    tables = []
    for name, own in results.traced["efficiencies"].groupby("series", sort=False):
        heads = [str(size) for size in own["size"]]
        rows = [
            (2 * level * NO_BREAK + text, *(_percent(x) for x in own[column]))
            for level, text, column in METRICS
        ]
        rows.append(("run", *(f"{row.run}:{row.repeat}" for row in own.itertuples(index=False))))
        tables.append((f"Efficiencies: {name}", Table(("ranks", *heads), rows, tuple(heads))))
    return tables


def collective_tables(results: Study) -> list[tuple[str, Table]]:
    """Collectives and exchanges on the most ranks of each series."""
    columns = ("collective", "calls", "s", "share", "waiting for late ranks, s", "rest, s", "bytes", "GB/s")
    return [
        (
            f"Communication: {name}",
            Table(columns, [
                (row.name, number(row.calls), number(row.mean_s), f"{row.share:.1%}", number(row.late_s),
                 number(row.rest_s), f"{row.bytes:,}", number(row.gb_per_s))
                for row in own.rename(columns={"run": "_run"}).itertuples(index=False)
            ], columns[1:]),
        )
        for name, own in largest(results.traced["collectives"])
    ]  # fmt: skip


def straggler_tables(results: Study) -> list[tuple[str, Table]]:
    """The ranks that others waited for longest, on the most ranks of each series."""
    columns = (
        "rank",
        "last",
        "of",
        "waiting caused, s",
        "share",
        "own waiting, s",
        "late after",
        "its share",
    )
    tables = []
    for name, own in largest(results.traced["stragglers"]):
        own = own.sort_values(["caused_s", "rank"], ascending=[False, True]).head(RANKS_SHOWN)
        rows = [
            (row.rank, row.last, row.groups, number(row.caused_s), f"{row.share:.1%}", number(row.waited_s), row.region,
             _percent(row.region_share))
            for row in own.itertuples(index=False) if row.caused_s > 0
        ]  # fmt: skip
        if rows:
            tables.append(
                (f"Ranks that others wait for: {name}", Table(columns, rows, (*columns[:6], columns[7])))
            )
    return tables


def link_tables(results: Study) -> list[tuple[str, Table]]:
    """The links between nodes, on the most ranks of each series that ran on three nodes or more."""
    columns = ("nodes", "waits", "longer than others, s", "share", "link")
    return [
        (
            f"Links between nodes: {name}",
            Table(columns, [
                (row.nodes, f"{row.waits:,}", number(row.longer_s), f"{row.share:.1%}", "slow" if row.slow else "")
                for row in own.head(RANKS_SHOWN).itertuples(index=False)
            ], columns[1:4]),
        )
        for name, own in largest(results.traced["links"])
    ]  # fmt: skip


def path_tables(results: Study) -> list[tuple[str, Table]]:
    """The critical path on the most ranks of each series: by region, and by rank."""
    columns = ("region", "on the path, s", "share", "mean over ranks, s", "gain by balance, s")
    tables = []
    by_rank = dict(largest(results.traced["path_ranks"]))
    for name, own in largest(results.traced["path_regions"]):
        rows = [
            (row.name, number(row.path_s), f"{row.share:.1%}", number(row.mean_s), number(row.gain_s))
            for row in own.head(REGIONS_SHOWN).itertuples(index=False)
        ]
        tables.append((f"Critical path: {name}", Table(columns, rows, columns[1:])))
        ranks = by_rank[name].sort_values(["path_s", "rank"], ascending=[False, True]).head(RANKS_SHOWN)
        if len(ranks) > 1:
            of_ranks = [
                (row.rank, number(row.path_s), f"{row.share:.1%}") for row in ranks.itertuples(index=False)
            ]
            heads = ("rank", "on the path, s", "share")
            tables.append((f"Critical path by rank: {name}", Table(heads, of_ranks, heads)))
    return tables


def largest(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(title, rows of the most ranks) of each series in `table`."""
    for name, own in table.groupby("series", sort=False):
        own = own[own["size"] == own["size"].max()]
        run, repeat, size = own[["run", "repeat", "size"]].iloc[0]
        yield f"{name}, {size} rank{'s' if size > 1 else ''} ({run}:{repeat})", own


def _percent(x: float) -> str:
    return f"{x:.1%}" if x == x else ""
