"""What is known of audits in words and as tables, for the terminal and for the report."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from analysis.headline import Finding
from analysis.operations.compare import compared
from analysis.operations.frames import CHANGES, Audits, named
from analysis.page.sections import Table
from analysis.page.text import number
from analysis.verdict import DIFFERS, SAME, counted
from kernels.torchops.verdicts import FALSE, MISSING, PARTLY, TRUE, UNSEEN, UNTESTABLE, UNTRIED

WORST = 12  # rows of the table of the largest differences of a change


@dataclass(frozen=True)
class Study:
    """All that is computed of audits: `recorded` (the frames), `sensitivity`: of how many cases of each operation and
    direction a change alters the bits; `compared`: each audit against the first; `notes` on what limits them."""

    recorded: Audits
    sensitivity: pd.DataFrame
    compared: pd.DataFrame
    notes: list[str]


def study(known: Audits) -> Study:
    """Everything about `known`, which has a certificate."""
    notes = [
        "no difference seen is said of the trials that were made: with n of them, p < 3/n at 95 %",
        "columns are apart: the number of threads enters where each number repeats its own bits; another algorithm in "
        "torch's deterministic mode is no variability",
    ]
    refused = known.cases[~known.cases["outcome"].isin(["done"])]
    if len(refused):
        notes.append(
            f"{counted(len(refused), 'case')} could not be audited; the list is in the table of cases"
        )
    return Study(known, sensitivity(known.seen), compared(known), notes)


def sensitivity(seen: pd.DataFrame) -> pd.DataFrame:
    """Of each operation, direction and change over all audits: `cases`, how many `differ`, the `trials`, the largest
    `ulp` and `v_c`, and whether the difference is of `values`, beyond rounding."""
    grouped = seen.assign(differ=seen["distinct"] > 1).groupby(
        ["operation", "direction", "change"], sort=False
    )
    return grouped.agg(
        cases=("case", "size"), differ=("differ", "sum"), trials=("trials", "sum"), ulp=("ulp", "max"),
        v_c=("v_c", "max"), values=("values", "any"),
    ).reset_index()  # fmt: skip


def exported(results: Study) -> dict[str, pd.DataFrame]:
    """The frames of `results` that are written as CSV, by name."""
    return {
        "cases": results.recorded.cases, "changes": results.recorded.seen, "statements": results.recorded.stated,
        "sensitivity": results.sensitivity, "certificates": results.compared,
    }  # fmt: skip


def sentences(results: Study) -> list[str]:
    """The verdict in a few sentences."""
    cases, stated = results.recorded.cases, results.recorded.stated
    done = cases[cases["outcome"] == "done"]
    runs = results.sensitivity[results.sensitivity["change"] == "runs"]
    racing = runs[runs["differ"] > 0]
    lines = [
        f"{counted(len(done), 'case')} of {counted(done['operation'].nunique(), 'operation')} audited; from run to run "
        f"{int(runs['differ'].sum())} differ"
        + (f": {_list(named(row) for row in racing.itertuples())}." if len(racing) else ".")
    ]
    documented = stated[stated["does"] != ""]
    if len(documented):
        words = documented["verdict"].value_counts()
        counts = [f"{words[w]} {w}" for w in (TRUE, PARTLY, FALSE, UNSEEN, UNTRIED, UNTESTABLE) if w in words]
        lines.append(f"{len(documented)} statements of torch's documentation: {', '.join(counts)}.")
    missing = stated[stated["does"] == ""]
    lines += [
        f"{'Backward of ' if row.backward else ''}{row.operation}: {row.why}; torch's deterministic mode: {row.mode}."
        for row in missing.itertuples()
    ]
    return lines


def findings(results: Study) -> list[Finding]:
    """What the verdict over all runs says of the audits: how many cases differ from run to run, how many by another
    change alone, and what became of the statements of the documentation."""
    cases, seen, stated = results.recorded.cases, results.recorded.seen, results.recorded.stated
    done = cases[cases["outcome"] == "done"]
    if done.empty:
        return []
    audits = len(results.recorded.certificates)
    by = f" by {counted(audits, 'run')}" if audits > 1 else ""
    differ = int(done["differs"].sum())
    verb = "differ" if differ > 1 else "differs"
    parts = [f"{differ or 'none'} of {counted(len(done), 'case')} {verb} from run to run"]
    altered = seen[(seen["distinct"] > 1) & (seen["change"] != "algorithm")]
    if more := len(altered[["run", "case"]].drop_duplicates()) - differ:
        parts.append(f"{more} more with threads, batch, position, address or process")
    if refused := len(cases) - len(done):
        parts.append(f"{refused} could not be audited")
    text = f"{counted(done['operation'].nunique(), 'operation')} audited{by}: {', '.join(parts)}"
    if (stated["does"] != "").any():
        words = stated["verdict"].value_counts()
        counts = [f"{words[word]} {word}" for word in (FALSE, PARTLY, MISSING, TRUE, UNSEEN) if word in words]
        text += f"; statements of torch's documentation: {', '.join(counts) or 'none could be tried'}"
    return [Finding(DIFFERS if differ else SAME, text, text)]


def all_tables(results: Study) -> list[tuple[str, Table]]:
    """Every table, in the order in which they are read."""
    return [
        *sensitivity_tables(results), *audit_tables(results), *mode_tables(results), *largest_tables(results),
        *refused_tables(results), *compared_tables(results),
    ]  # fmt: skip


def sensitivity_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): for operations with any difference, how many of their cases each change alters."""
    rows = []
    for (operation, direction), same in results.sensitivity.groupby(["operation", "direction"], sort=False):
        if not same["differ"].any():
            continue
        by = same.set_index("change")
        cells = [
            f"{by['differ'][change]} of {by['cases'][change]}" if change in by.index else ""
            for change in CHANGES
        ]
        rows.append((operation, direction, *cells))
    columns = ("operation", "direction", *CHANGES)
    return [("Cases whose bits a change alters", Table(columns, rows, CHANGES))] if rows else []


def audit_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): every statement of the documentation that could be tried, and what it lacks."""
    stated = results.recorded.stated
    rows = [
        (
            row.text or f"{'backward of ' if row.backward else ''}{row.operation}", row.does or "(not documented)",
            row.verdict, row.seen, row.cases, row.trials, row.mode, row.why,
        )
        for row in stated[stated["verdict"] != UNTESTABLE].itertuples(index=False)
    ]  # fmt: skip
    columns = ("statement", "says that it", "verdict", "cases that differ", "cases", "trials", "mode", "why")
    return (
        [("torch's documentation of its deterministic mode", Table(columns, rows, columns[3:6]))]
        if rows
        else []
    )


def mode_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): the price of the deterministic mode for cases in which it changes anything."""
    cases = results.recorded.cases
    altered = results.recorded.seen
    other = set(altered[(altered["change"] == "algorithm") & (altered["distinct"] > 1)]["case"])
    timed = cases[(cases["differs"] | cases["case"].isin(other)) & (cases["mode"] != "throws")]
    rows = [
        (
            row.case, row.mode or "nothing differs", "another" if row.case in other else "the same",
            number(1e6 * row.seconds), number(1e6 * row.seconds_in_mode),
            f"{row.seconds_in_mode / row.seconds:.2f}" if row.seconds else "",
        )
        for row in timed.itertuples(index=False)
    ]  # fmt: skip
    columns = ("case", "the mode", "bits of one thread", "us", "us in the mode", "ratio")
    return [("Price of the deterministic mode", Table(columns, rows, columns[3:]))] if rows else []


def largest_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): the largest differences from run to run."""
    seen = results.recorded.seen
    runs = seen[(seen["change"] == "runs") & (seen["distinct"] > 1)]
    runs = runs.sort_values("v_c", ascending=False, kind="stable").head(WORST)
    rows = [
        (
            row.case, f"{row.distinct} of {row.trials}", number(row.v_c), number(row.v_ermv), number(row.ulp),
            "further" if row.values else "within a rounding",
        )
        for row in runs.itertuples(index=False)
    ]  # fmt: skip
    columns = ("case", "results", "V_c", "V_ermv", "ULP", "size")
    return [("Largest differences from run to run", Table(columns, rows, columns[1:5]))] if rows else []


def refused_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): cases that could not be audited."""
    cases = results.recorded.cases
    rows = [
        (row.case, row.outcome, row.error)
        for row in cases[cases["outcome"] != "done"].itertuples(index=False)
    ]
    return [("Cases that could not be audited", Table(("case", "outcome", "why"), rows))] if rows else []


def compared_tables(results: Study) -> list[tuple[str, Table]]:
    """(title, table): each certificate against the first."""
    rows = [
        (row.run, row.against, row.what, row.first, row.other)
        for row in results.compared.itertuples(index=False)
    ]
    columns = ("certificate", "against", "what", "first", "other")
    return [("Certificates compared", Table(columns, rows))] if rows else []


def _list(names, most: int = 12) -> str:
    """At most so many names."""
    names = list(dict.fromkeys(names))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
