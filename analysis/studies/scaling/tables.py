"""Sentences and tables on scaling, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from analysis.page.sections import Shown, Table, filled, lines_of, said_once
from analysis.page.text import interval, number
from analysis.studies.scaling.fit import MISFIT
from analysis.studies.scaling.known import Known

RANKS_SHOWN = 8  # most rows of a table of ranks, the most important first
REGIONS_SHOWN = 12
NO_BREAK = "\u00a0"  # a space that HTML keeps
METRICS = (
    (0, "global efficiency", "global"), (1, "parallel efficiency", "parallel"), (2, "load balance", "load_balance"),
    (2, "communication efficiency", "communication"), (3, "serialisation", "serialisation"),
    (3, "transfer", "transfer"), (1, "computation scaling", "computation"), (0, "lost to imbalance", "lost_balance"),
    (0, "lost to serialisation", "lost_serialisation"), (0, "lost to transfer", "lost_transfer"),
)  # fmt: skip


def all_tables(known: Known) -> list[tuple[str, Table]]:
    """Every table, in reading order."""
    return [*speedup_tables(known), *fit_tables(known), *efficiency_tables(known), *collective_tables(known),
            *straggler_tables(known), *link_tables(known), *path_tables(known)]  # fmt: skip


SPEEDUP = (
    Shown("series", lambda row: row.series),
    Shown("ranks", lambda row: row.size, number=True),
    Shown("scaling", lambda row: row.kind),
    Shown("runs", lambda row: row.runs, number=True),
    Shown("median, s", lambda row: number(row.median_s), number=True),
    Shown("95 % interval", lambda row: interval(row.low_s, row.high_s), number=True),
    Shown("speedup", lambda row: f"{row.speedup:.3g}", number=True),
    Shown("95 % of it", lambda row: interval(row.speedup_low, row.speedup_high), number=True),
    Shown("efficiency", lambda row: f"{row.efficiency:.1%}", number=True),
    Shown("95 % of that", lambda row: interval(row.efficiency_low, row.efficiency_high, "{:.1%}".format),
          number=True),
)  # fmt: skip


def speedup_tables(known: Known) -> list[tuple[str, Table]]:
    """Times, speedups and efficiencies of series with several rank counts."""
    if known.speedups.empty:
        return []
    table, once = said_once(filled(lines_of(known.speedups, SPEEDUP, by="series")))
    return [(f"Speedup{once}", table)]


def base_notes(known: Known) -> list[str]:
    """A sentence for each base above one rank, on its series."""
    bases = known.speedups[known.speedups["base"] > 1].drop_duplicates("series")
    return [
        f"the smallest run has {base} ranks, with assumed efficiency 1, in {'; '.join(same['series'])}"
        for base, same in bases.groupby("base")
    ]


def fit_notes(known: Known) -> list[str]:
    """Sentences on series without a fitted law."""
    if known.fits.empty:
        return []
    lacking = known.fits[known.fits["model"] == ""]
    notes = [f"{why}: {'; '.join(same['series'])}" for why, same in lacking.groupby("remark", sort=False)]
    for name, own in known.fits[known.fits["model"] != ""].groupby("series", sort=False):
        if not own["chosen"].any():
            notes.append(f"no law fits {name}: the best, {own['model'].iloc[0]}, has an error of "
                         f"{own['error'].iloc[0]:.0%}, above the limit of {MISFIT:.0%}")  # fmt: skip
    return notes


FIT = (
    Shown("series", lambda row: row.series),
    Shown("model of T(p)", lambda row: row.model),
    Shown("chosen", lambda row: "yes" if row.chosen else ""),
    Shown("ΔAICc", lambda row: number(row.delta), number=True),
    Shown("error", lambda row: _percent(row.error), number=True),
    Shown("parameters (95 %)", lambda row: row.parameters),
    Shown("holds for", lambda row: row.range),
    Shown("remark", lambda row: row.remark),
)


def fit_tables(known: Known) -> list[tuple[str, Table]]:
    """All candidates for T(p), best first, for series with a fit; `fit_notes` has the others."""
    fitted = known.fits[known.fits["model"] != ""] if len(known.fits) else known.fits
    return [("Laws fitted to the run time", lines_of(fitted, FIT, by="series"))] if len(fitted) else []


def efficiency_tables(known: Known) -> list[tuple[str, Table]]:
    """POP metrics of each series: rows are metrics, columns rank counts."""
    tables = []
    for name, own in known.traced["efficiencies"].groupby("series", sort=False):
        heads = [str(size) for size in own["size"]]
        rows = [
            (2 * level * NO_BREAK + text, *(_percent(x) for x in own[column]))
            for level, text, column in METRICS
        ]
        rows.append(("run", *(f"{row.run}:{row.repeat}" for row in own.itertuples(index=False))))
        tables.append((f"Efficiencies: {name}", Table(("ranks", *heads), rows, tuple(heads))))
    return tables


COLLECTIVE = (
    Shown("collective", lambda row: row.name),
    Shown("calls", lambda row: number(row.calls), number=True),
    Shown("s", lambda row: number(row.mean_s), number=True),
    Shown("share", lambda row: f"{row.share:.1%}", number=True),
    Shown("waiting for late ranks, s", lambda row: number(row.late_s), number=True),
    Shown("rest, s", lambda row: number(row.rest_s), number=True),
    Shown("bytes", lambda row: f"{row.bytes:,}", number=True),
    Shown("GB/s", lambda row: number(row.gb_per_s), number=True),
)


def collective_tables(known: Known) -> list[tuple[str, Table]]:
    """Collectives and exchanges on the largest rank count of each series."""
    return [
        (f"Communication: {name}", lines_of(own, COLLECTIVE))
        for name, own in largest(known.traced["collectives"])
    ]


STRAGGLER = (
    Shown("rank", lambda row: row.rank, number=True),
    Shown("last", lambda row: row.last, number=True),
    Shown("of", lambda row: row.groups, number=True),
    Shown("waiting caused, s", lambda row: number(row.caused_s), number=True),
    Shown("share", lambda row: f"{row.share:.1%}", number=True),
    Shown("own waiting, s", lambda row: number(row.waited_s), number=True),
    Shown("late after", lambda row: row.region),
    Shown("its share", lambda row: _percent(row.region_share), number=True),
)


def straggler_tables(known: Known) -> list[tuple[str, Table]]:
    """The ranks that others waited for longest, on the largest rank count of each series."""
    tables = []
    for name, own in largest(known.traced["stragglers"]):
        late = own[own["caused_s"] > 0].sort_values(["caused_s", "rank"], ascending=[False, True])
        if len(late):
            tables.append(
                (f"Ranks that others wait for: {name}", lines_of(late.head(RANKS_SHOWN), STRAGGLER))
            )
    return tables


LINK = (
    Shown("nodes", lambda row: row.nodes),
    Shown("waits", lambda row: f"{row.waits:,}", number=True),
    Shown("longer than others, s", lambda row: number(row.longer_s), number=True),
    Shown("share", lambda row: f"{row.share:.1%}", number=True),
    Shown("link", lambda row: "slow" if row.slow else ""),
)


def link_tables(known: Known) -> list[tuple[str, Table]]:
    """The links between nodes, on the largest rank count of each series that ran on three nodes or more."""
    return [
        (f"Links between nodes: {name}", lines_of(own.head(RANKS_SHOWN), LINK))
        for name, own in largest(known.traced["links"])
    ]


PATH = (
    Shown("region", lambda row: row.name),
    Shown("on the path, s", lambda row: number(row.path_s), number=True),
    Shown("share", lambda row: f"{row.share:.1%}", number=True),
    Shown("mean over ranks, s", lambda row: number(row.mean_s), number=True),
    Shown("gain by balance, s", lambda row: number(row.gain_s), number=True),
)
BY_RANK = (
    Shown("rank", lambda row: row.rank, number=True),
    Shown("on the path, s", lambda row: number(row.path_s), number=True),
    Shown("share", lambda row: f"{row.share:.1%}", number=True),
)


def path_tables(known: Known) -> list[tuple[str, Table]]:
    """The critical path on the largest rank count of each series: by region, and by rank."""
    tables = []
    by_rank = dict(largest(known.traced["path_ranks"]))
    for name, own in largest(known.traced["path_regions"]):
        tables.append((f"Critical path: {name}", lines_of(own.head(REGIONS_SHOWN), PATH)))
        ranks = by_rank[name].sort_values(["path_s", "rank"], ascending=[False, True]).head(RANKS_SHOWN)
        if len(ranks) > 1:
            tables.append((f"Critical path by rank: {name}", lines_of(ranks, BY_RANK)))
    return tables


def largest(table: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """(title, rows of the largest rank count) of each series in `table`."""
    for name, own in table.groupby("series", sort=False):
        own = own[own["size"] == own["size"].max()]
        run, repeat, size = own[["run", "repeat", "size"]].iloc[0]
        yield f"{name}, {size} rank{'s' if size > 1 else ''} ({run}:{repeat})", own


def _percent(x: float) -> str:
    return f"{x:.1%}" if x == x else ""
