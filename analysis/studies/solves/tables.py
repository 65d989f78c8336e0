"""Sentences and tables on solves, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.headline import Finding
from analysis.page.sections import Shown, Table, lines_of, table_of
from analysis.page.text import below, number
from analysis.pairs import EACH_OTHER
from analysis.power import bounded
from analysis.runs import label
from analysis.studies.growth.tables import law_table
from analysis.studies.solves.growth import growth
from analysis.studies.solves.pairs import cases, decisions, pairs
from analysis.studies.solves.runs import Solves
from analysis.verdict import DIFFERS, counted
from kernels.bits import bound

LISTED = 4  # most numbers of iterations in a cell: beyond, only their range


@dataclass(frozen=True)
class Known:
    """All results on the solves: `recorded` (the frames), `cases`, `decisions`, `pairs`, `growth`, and `notes`:
    sentences on the limits of these results."""

    recorded: Solves
    cases: pd.DataFrame
    decisions: pd.DataFrame
    pairs: pd.DataFrame
    growth: pd.DataFrame
    notes: list[str]


def known_of(solves: Solves) -> Known:
    """All results on `solves`."""
    known = Known(solves, cases(solves), decisions(solves), pairs(solves), growth(solves), [])
    if solves.replays:
        known.notes.append(f"{solves.replays:,} samples left out: their orders repeat those of the same seed")
    if incomplete := int(known.cases["incomplete"].sum()):
        known.notes.append(f"{counted(incomplete, 'solve')} ended early: only figures show them")
    if not_finite := int(known.cases["not_finite"].sum()):
        known.notes.append(f"{counted(not_finite, 'residual')} NaN or infinite: not drawn")
    return known


def all_tables(known: Known) -> list[tuple[str, Table]]:
    """Every table, in reading order."""
    return [*case_tables(known), *pair_tables(known), *growth_tables(known)]


def cases_listed(known: Known) -> pd.DataFrame:
    """The cases, with their decisions as lists of objects."""
    return known.cases.assign(decisions=[_listed(taken) for taken in known.cases["decisions"]])


def decisions_listed(known: Known) -> pd.DataFrame:
    """The decisions, as lists of objects."""
    return known.decisions.assign(
        decisions=[_listed(taken) for taken in known.decisions["decisions"]],
        sample_decisions=[
            [{"iterations": iterations, "samples": count} for iterations, count in drawn.items()]
            for drawn in known.decisions["sample_decisions"]
        ],
    )


def _listed(taken: dict[tuple[int, bool], int]) -> list[dict[str, int | bool]]:
    return [
        {"iterations": iterations, "converged": converged, "solves": solves}
        for (iterations, converged), solves in taken.items()
    ]


DECIDED = (
    Shown("family", lambda row: row.family),
    Shown("solves", lambda row: row.solves, number=True),
    Shown("decision", lambda row: next(_clauses(row))),
    Shown("drift study", lambda row: [*_clauses(row), ""][1]),
)


def decision_table(known: Known) -> tuple[str, Table]:
    """(title, table) with the clauses of `sentences`, a row per family."""
    return "Decisions", lines_of(known.decisions, DECIDED)


def sentences(known: Known) -> list[str]:
    """A sentence on each family: whether a decision changed."""
    return [f"{row.family}: {'; '.join(_clauses(row))}." for row in known.decisions.itertuples(index=False)]


def changed(known: Known) -> list[tuple[str, str, str]]:
    """(name, verdict, words) of each family in which a decision changed, for the verdict of the report."""
    return [
        (row.family, DIFFERS, "; ".join(_clauses(row)))
        for row in known.decisions.itertuples(index=False)
        if row.changed or row.samples_changed
    ]


def findings(known: Known) -> list[Finding]:
    """The finding on `changed` decisions for the verdict over all runs."""
    decisions = changed(known)
    if not decisions:
        return []
    alone = "Solves that should take the same decisions did not"
    return [Finding(DIFFERS, alone, f"{counted(len(decisions), 'solver')} changed a decision")]


def _clauses(row) -> Iterator[str]:
    text = stops(row.decisions)
    if not row.decisions:
        yield "no complete solve recorded its iterations, so decisions are unknown"
    elif row.changed:
        yield f"a decision changed: {text}"
    elif row.solves == 1:
        yield f"1 solve, {text}: nothing to compare with"
    else:
        yield f"one decision in {row.solves} solves: {text} ({bounded(row.solves)})"
    if row.samples:
        words = "a decision changed" if row.samples_changed else "one decision"
        drawn = {(n, True): count for n, count in row.sample_decisions.items()}
        text = f"injected orders: {words}, {stops(drawn)} in {counted(row.samples, 'sample')}"
        yield text + (f" ({bounded(row.samples)})" if row.samples > 1 and not row.samples_changed else "")


def stops(taken: dict[tuple[int, bool], int]) -> str:
    """`41 iterations`, or `41 (3 x), 43 (1 x) iterations`, or the range of many."""
    if not taken:
        return ""
    if len(taken) > LISTED:
        least, most = min(taken)[0], max(taken)[0]
        lost = sum(count for (_, converged), count in taken.items() if not converged)
        failed = f", {lost} x not converged" if lost else ""
        return f"{least} to {most} iterations, {len(taken)} different outcomes{failed}"
    words = [
        f"{n}" + ("" if converged else " not converged") + (f" ({count} x)" if len(taken) > 1 else "")
        for (n, converged), count in taken.items()
    ]
    if len(taken) == 1:
        ((n, converged),) = taken
        return counted(n, "iteration") + ("" if converged else ", not converged")
    return f"{', '.join(words)} iterations"


CASE = (
    Shown("case", lambda row: row.case),
    Shown(
        "solves", lambda row: f"{row.solves}" + (f" + {row.incomplete} incomplete" if row.incomplete else "")
    ),
    Shown("iterations", lambda row: _numbers(row.decisions)),
    Shown("histories", lambda row: f"{row.histories} of {row.solves}", number=True),
    Shown(
        "solutions", lambda row: f"{row.solutions} of {row.recorded}" if row.recorded else "-", number=True
    ),
    Shown("residual", lambda row: _last_residual(row)),
)
MEASURES = ("true_residual", "gap", "attained", "error", "orthogonality")


def case_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family: results of its solves, without columns that no solve recorded."""
    tables = []
    for family, same in known.cases.groupby("family", sort=False):
        measured = [
            Shown(name.replace("_", " "), lambda row, name=name: number(getattr(row, name)), number=True)
            for name in MEASURES
            if same[name].notna().any()
        ]
        tables.append((f"Solves: {family}", lines_of(same, (*CASE, *measured))))
    return tables


def _numbers(decisions: dict[tuple[int, bool], int]) -> str:
    """`stops` without the word that heads the column."""
    return stops(decisions).replace(" iterations", "").replace(" iteration", "") or "-"


def _last_residual(row) -> str:
    """The last residual, or the range over solves, and the number of non-finite residuals."""
    ends = dict.fromkeys("NaN" if x != x else number(x) for x in (row.residual, row.residual_most))
    text = " to ".join(ends)
    return text + (f" ({row.not_finite} not finite)" if row.not_finite else "")


# Columns from a case, its reference, and the comparisons.
PAIRED = (
    Shown("case", lambda case, against, some: case),
    Shown("against", lambda case, against, some: "each other" if against == EACH_OTHER else against),
    Shown("pairs", lambda case, against, some: len(some), number=True),
    Shown(
        "differ", lambda case, against, some: f"{(some['differing'] > 0).sum()} of {len(some)}", number=True
    ),
    Shown("p at 95 %", lambda case, against, some: _unseen(some, against), number=True),
    Shown("first at iteration", lambda case, against, some: number(_earliest(some)["first"]), number=True),
    Shown("between", lambda case, against, some: _names(_earliest(some))),
    Shown("largest difference", lambda case, against, some: number(_farthest(some)["largest"]), number=True),
    Shown("at iteration", lambda case, against, some: number(_farthest(some)["at"]), number=True),
    Shown("undefined", lambda case, against, some: number(some["undefined"].sum()), number=True),
)


def pair_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family: first and largest differences of residual histories, a row for the repeats of each
    case and a row for each case against the reference."""
    return [
        (
            f"Residual histories compared: {family}",
            table_of(((*key, some) for key, some in same.groupby(["case", "against"], sort=False)), PAIRED),
        )
        for family, same in known.pairs.groupby("family", sort=False)
    ]


def _earliest(some: pd.DataFrame) -> pd.Series:
    """The comparison with the earliest difference; NaN without differences."""
    parted = some[some["differing"] > 0]
    return parted.loc[parted["first"].idxmin()] if len(parted) else pd.Series({"first": np.nan})


def _farthest(some: pd.DataFrame) -> pd.Series:
    """The comparison with the largest difference; NaN without defined differences."""
    known = some["largest"].notna().any()
    return some.loc[some["largest"].idxmax()] if known else pd.Series({"largest": np.nan, "at": np.nan})


def _names(pair: pd.Series) -> str:
    """The labels of the two solves."""
    if "a_run" not in pair:
        return ""
    return f"{label((pair['a_run'], pair['a_repeat']))}, {label((pair['b_run'], pair['b_repeat']))}"


def _unseen(some: pd.DataFrame, against: str) -> str:
    """`< 39 %` if no history differs: the bound for the number of solves, with the first of repeats."""
    solves = len(some) + (against == EACH_OTHER)
    return "" if (some["differing"] > 0).any() else below(bound(solves))


def growth_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table) per family: the growth of the difference between solves with injected orders and exact sums."""
    tables = []
    for family, same in known.growth.groupby("family", sort=False):
        tolerance = same["tolerance"].iloc[0]
        where = f"; tolerance {number(tolerance)}" if tolerance > 0 else ""
        table, once = law_table(same, "case", unit="iteration")
        tables.append((f"Growth of the difference: {family}{where}{once}", table))
    return tables
