"""What is known of the solves in words and as tables, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.growth.table import law_table
from analysis.headline import Finding
from analysis.page.sections import Table
from analysis.page.text import below, number
from analysis.power import bounded
from analysis.runs import label
from analysis.solves.frames import Solves
from analysis.solves.growth import growth
from analysis.solves.pairs import cases, decisions, pairs
from analysis.variability import EACH_OTHER
from analysis.verdict import DIFFERS, counted
from kernels.bits import bound

LISTED = 4  # numbers of iterations in a cell before only their range is given


@dataclass(frozen=True)
class Study:
    """All that is computed of the solves: `recorded` (the frames), `cases`, `decisions`, `pairs`, `growth`, and
    `notes`, sentences on what limits them."""

    recorded: Solves
    cases: pd.DataFrame
    decisions: pd.DataFrame
    pairs: pd.DataFrame
    growth: pd.DataFrame
    notes: list[str]


def study(solves: Solves) -> Study:
    """Everything about `solves`, which must not be empty."""
    results = Study(solves, cases(solves), decisions(solves), pairs(solves), growth(solves), [])
    if solves.replays:
        results.notes.append(
            f"{solves.replays:,} samples of injected orders were drawn from one seed again: left out"
        )
    if incomplete := int(results.cases["incomplete"].sum()):
        results.notes.append(
            f"{counted(incomplete, 'solve')} ended early: drawn as far as recorded, and counted nowhere else"
        )
    if not_finite := int(results.cases["not_finite"].sum()):
        results.notes.append(f"{counted(not_finite, 'residual')} NaN or infinite: not drawn")
    return results


def all_tables(results: Study) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [*case_tables(results), *pair_tables(results), *growth_tables(results)]


def exported(results: Study) -> dict[str, pd.DataFrame]:
    """The frames of `results` that are written as CSV, by name."""
    decisions = results.decisions.assign(
        decisions=[_listed(taken) for taken in results.decisions["decisions"]],
        sample_decisions=[
            [{"iterations": iterations, "samples": count} for iterations, count in drawn.items()]
            for drawn in results.decisions["sample_decisions"]
        ],
    )
    cases = results.cases.assign(decisions=[_listed(taken) for taken in results.cases["decisions"]])
    return {
        "solves": results.recorded.solves, "cases": cases, "decisions": decisions,
        "pairs": results.pairs, "growth": results.growth, "samples": results.recorded.samples,
    }  # fmt: skip


def _listed(taken: dict[tuple[int, bool], int]) -> list[dict[str, int | bool]]:
    return [
        {"iterations": iterations, "converged": converged, "solves": solves}
        for (iterations, converged), solves in taken.items()
    ]


def decision_table(results: Study) -> tuple[str, Table]:
    """(title, table) of what `sentences` say, one row per family."""
    rows = [
        (row.family, row.solves, *[*_clauses(row), ""][:2])
        for row in results.decisions.itertuples(index=False)
    ]
    return "Decisions", Table(("family", "solves", "decision", "drift study"), rows, ("solves",))


def sentences(results: Study) -> list[str]:
    """What there is to say of each family: whether a decision changed."""
    return [f"{row.family}: {'; '.join(_clauses(row))}." for row in results.decisions.itertuples(index=False)]


def changed(results: Study) -> list[tuple[str, str, str]]:
    """(name, verdict, words) of each family in which a decision changed, for the verdict of the report."""
    return [
        (row.family, DIFFERS, "; ".join(_clauses(row)))
        for row in results.decisions.itertuples(index=False)
        if row.changed or row.samples_changed
    ]


def findings(decisions: Sequence[tuple[str, str, str]]) -> list[Finding]:
    """What the verdict over all runs says of decisions that `changed`."""
    if not decisions:
        return []
    alone = "Solves that should take the same decisions did not"
    return [Finding(DIFFERS, alone, f"{counted(len(decisions), 'solver')} changed a decision")]


def _clauses(row) -> Iterator[str]:
    text = stops(row.decisions)
    if not row.decisions:
        yield "no complete solve recorded its iterations, so nothing is known of a decision"
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
    """`41 iterations`, or `41 (3 x), 43 (1 x) iterations`, or their range where they are many."""
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


def case_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: what its solves came to. Columns of what no solve recorded are left out."""
    measures = {"true residual": "true_residual", "gap": "gap", "attained": "attained", "error": "error",
                "orthogonality": "orthogonality"}  # fmt: skip
    tables = []
    for family, same in results.cases.groupby("family", sort=False):
        shown = {name: column for name, column in measures.items() if same[column].notna().any()}
        columns = ("case", "solves", "iterations", "histories", "solutions", "residual", *shown)
        rows = [
            (
                row.case, f"{row.solves}" + (f" + {row.incomplete} incomplete" if row.incomplete else ""),
                stops(row.decisions).replace(" iterations", "").replace(" iteration", "") or "-",
                f"{row.histories} of {row.solves}",
                f"{row.solutions} of {row.recorded}" if row.recorded else "-", _last_residual(row),
                *(number(getattr(row, column)) for column in shown.values()),
            )
            for row in same.itertuples(index=False)
        ]  # fmt: skip
        tables.append((f"Solves: {family}", Table(columns, rows, (*columns[3:5], *columns[6:]))))
    return tables


def _last_residual(row) -> str:
    """The last residual, or the range over solves; and how many residuals are no numbers."""
    ends = dict.fromkeys("NaN" if x != x else number(x) for x in (row.residual, row.residual_most))
    text = " to ".join(ends)
    return text + (f" ({row.not_finite} not finite)" if row.not_finite else "")


def pair_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: where residual histories part, and how far they lie apart, one row for the repeats
    of each case and one for each case against the reference."""
    columns = ("case", "against", "pairs", "differ", "p at 95 %", "first at iteration", "between", "largest difference",
               "at iteration", "undefined")  # fmt: skip
    tables = []
    for family, same in results.pairs.groupby("family", sort=False):
        rows = []
        for (case, against), some in same.groupby(["case", "against"], sort=False):
            parted = some[some["differing"] > 0]
            one = parted.loc[parted["first"].idxmin()] if len(parted) else None
            far = some.loc[some["largest"].idxmax()] if some["largest"].notna().any() else None
            rows.append(
                (
                    case, "each other" if against == EACH_OTHER else against, len(some),
                    f"{len(parted)} of {len(some)}", _unseen(some, parted, against),
                    number(one["first"]) if one is not None else "",
                    f"{label((one['a_run'], one['a_repeat']))}, {label((one['b_run'], one['b_repeat']))}"
                    if one is not None else "",
                    number(far["largest"]) if far is not None else "",
                    number(far["at"]) if far is not None else "", number(some["undefined"].sum()),
                )
            )  # fmt: skip
        numbers = (*columns[2:6], *columns[7:])
        tables.append((f"Residual histories compared: {family}", Table(columns, rows, numbers)))
    return tables


def _unseen(some: pd.DataFrame, parted: pd.DataFrame, against: str) -> str:
    """`< 39 %` where no history parts: of so many solves, each other's first included."""
    solves = len(some) + (against == EACH_OTHER)
    return below(bound(solves)) if parted.empty else ""


def growth_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table) per family: the growth of the difference between solves by injected orders and by exact sums."""
    tables = []
    for family, same in results.growth.groupby("family", sort=False):
        tolerance = same["tolerance"].iloc[0]
        where = f"; tolerance {number(tolerance)}" if tolerance > 0 else ""
        table = law_table(same, {"case": "case"}, unit="iteration")
        tables.append((f"Growth of the difference: {family}{where}", table))
    return tables
