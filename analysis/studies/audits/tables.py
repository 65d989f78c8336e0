"""Sentences and tables on audits, for the terminal and for the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from analysis.headline import Finding
from analysis.page.sections import Shown, Table, lines_of
from analysis.page.text import number
from analysis.studies.audits.certificates import CHANGES, Audits, named
from analysis.studies.audits.compare import compared
from analysis.verdict import DIFFERS, SAME, counted
from kernels.as_json import Column
from kernels.torchops.verdicts import FALSE, MISSING, PARTLY, TRUE, UNSEEN, UNTESTABLE, UNTRIED

MOST_NAMES = 40  # operations named in a row
WORST = 12  # rows of the table of the largest differences of a change


@dataclass(frozen=True)
class Known:
    """All results on audits: `recorded`: the certificates; `sensitivity`: for each operation, direction and change, the
    number of cases that it alters; `processors`: for each operation, direction and layer of libraries, those that its
    code for another processor alters; `compared`: each certificate against the first; `notes`: limits of these
    results."""

    recorded: Audits
    sensitivity: pd.DataFrame
    processors: pd.DataFrame
    compared: pd.DataFrame
    notes: list[str]


def known_of(audits: Audits) -> Known:
    """All results on `audits`."""
    notes = [
        "'no difference seen' holds for the trials made: n equal trials bound p below 3/n at 95 %",
        "columns are independent: `threads` compares numbers of threads whose own bits repeat; another algorithm in "
        "torch's deterministic mode does not count as variability",
    ]
    if refused := int((audits.cases["outcome"] != "done").sum()):
        notes.append(f"{counted(refused, 'case')} could not be audited; the table of cases lists them")
    return Known(audits, sensitivity(audits.seen), processors(audits.layers), compared(audits), notes)


SENSITIVITY = {
    "operation": Column("str"), "direction": Column("str"), "change": Column("str"), "cases": Column("int64"),
    "differ": Column("int64", "cases whose bits the change alters"), "trials": Column("int64", "calls"),
    "ulp": Column("float64", "the largest", "ULP"), "v_c": Column("float64", "the largest"),
    "values": Column("bool", "a difference is beyond rounding"),
}  # fmt: skip


def sensitivity(seen: pd.DataFrame) -> pd.DataFrame:
    """A row per operation, direction and change over all audits: number of `cases`, how many `differ`, `trials`, the
    largest `ulp` and `v_c`, and `values`: whether a difference is beyond rounding."""
    grouped = seen.assign(differ=seen["distinct"] > 1).groupby(
        ["operation", "direction", "change"], sort=False
    )
    return grouped.agg(
        cases=("case", "size"), differ=("differ", "sum"), trials=("trials", "sum"), ulp=("ulp", "max"),
        v_c=("v_c", "max"), values=("values", "any"),
    ).reset_index()  # fmt: skip


PROCESSORS = {
    "operation": Column("str"), "direction": Column("str"),
    "held": Column("str", "layer, and the level that it was held to"), "cases": Column("int64"),
    "differ": Column("int64", "cases whose bits the layer's code for this level alters"),
}  # fmt: skip


def processors(layers: pd.DataFrame) -> pd.DataFrame:
    """A row per operation, direction and layer held to a level, over all audits: number of `cases`, how many
    `differ`."""
    grouped = layers.groupby(["operation", "direction", "held"], sort=False)
    return grouped.agg(cases=("differs", "size"), differ=("differs", "sum")).reset_index()


def sentences(known: Known) -> list[str]:
    """The verdict in a few sentences."""
    cases, stated = known.recorded.cases, known.recorded.stated
    done = cases[cases["outcome"] == "done"]
    runs = known.sensitivity[known.sensitivity["change"] == "runs"]
    racing = runs[runs["differ"] > 0]
    lines = [
        f"{counted(len(done), 'case')} of {counted(done['operation'].nunique(), 'operation')} audited; from run to run "
        f"{int(runs['differ'].sum())} differ"
        + (f": {_list(named(row) for row in racing.itertuples())}." if len(racing) else ".")
    ]
    if follow := _follow(known):
        lines.append(f"{follow[:1].upper()}{follow[1:]}.")
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


def findings(known: Known) -> list[Finding]:
    """The finding for the verdict over all runs: how many cases differ from run to run, how many only by another
    change, and the verdicts on the documentation."""
    cases, seen, stated = known.recorded.cases, known.recorded.seen, known.recorded.stated
    done = cases[cases["outcome"] == "done"]
    if done.empty:
        return []
    audits = len(known.recorded.certificates)
    by = f" by {counted(audits, 'run')}" if audits > 1 else ""
    differ = int(done["differs"].sum())
    verb = "differ" if differ > 1 else "differs"
    parts = [f"{differ or 'none'} of {counted(len(done), 'case')} {verb} from run to run"]
    altered = seen[(seen["distinct"] > 1) & ~seen["change"].isin(["algorithm", "cpu"])]
    if more := len(altered[["run", "case"]].drop_duplicates()) - differ:
        parts.append(f"{more} more with threads, batch, position, address or process")
    if follow := _follow(known):
        parts.append(follow)
    if refused := len(cases) - len(done):
        parts.append(f"{refused} could not be audited")
    text = f"{counted(done['operation'].nunique(), 'operation')} audited{by}: {', '.join(parts)}"
    if (stated["does"] != "").any():
        words = stated["verdict"].value_counts()
        counts = [f"{words[word]} {word}" for word in (FALSE, PARTLY, MISSING, TRUE, UNSEEN) if word in words]
        text += f"; statements of torch's documentation: {', '.join(counts) or 'none could be tried'}"
    return [Finding(DIFFERS if differ else SAME, text, text)]


def _follow(known: Known) -> str:
    """`9 of 20 cases follow the processor, through ATen (7) and MKL (2)`; empty without that axis."""
    layers = known.recorded.layers
    if layers.empty:
        return ""
    follow = layers[layers["differs"]]
    each = ["run", "case"]
    count, of = (len(rows[each].drop_duplicates()) for rows in (follow, layers))
    if not count:
        return f"none of {counted(of, 'case')} follows the processor"
    named_layer = follow.assign(layer=follow["held"].str.rpartition(" ")[0])
    by = named_layer.drop_duplicates([*each, "layer"])["layer"].value_counts()
    through = ", ".join(f"{layer} ({n})" for layer, n in by.items())
    verb = "follow" if count > 1 else "follows"
    return f"{count} of {counted(of, 'case')} {verb} the processor, through {through}"


def all_tables(known: Known) -> list[tuple[str, Table]]:
    """Every table, in reading order."""
    return [
        *sensitivity_tables(known), *processor_tables(known), *audit_tables(known), *mode_tables(known),
        *largest_tables(known), *refused_tables(known), *compared_tables(known),
    ]  # fmt: skip


def sensitivity_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): how many cases each change alters, for operations with a difference."""
    rows = []
    for (operation, direction), same in known.sensitivity.groupby(["operation", "direction"], sort=False):
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


def processor_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): which operations a library's code for another processor alters."""
    rows = []
    for held, same in known.processors.groupby("held", sort=False):
        follow = same[same["differ"] > 0]
        names = _list(sorted(follow["operation"]), MOST_NAMES) or "none"
        count = f"{follow['operation'].nunique()} of {same['operation'].nunique()}"
        rows.append((held, count, f"{same['differ'].sum()} of {same['cases'].sum()}", names))
    title = "Operations whose bits follow the processor, by the library that chooses the code"
    return [(title, Table(("held to", "operations", "cases", "which"), rows))] if rows else []


STATED = (
    Shown("statement", lambda row: row.text or f"{'backward of ' if row.backward else ''}{row.operation}"),
    Shown("says that it", lambda row: row.does or "(not documented)"),
    Shown("verdict", lambda row: row.verdict),
    Shown("cases that differ", lambda row: row.seen, number=True),
    Shown("cases", lambda row: row.cases, number=True),
    Shown("trials", lambda row: row.trials, number=True),
    Shown("mode", lambda row: row.mode),
    Shown("why", lambda row: row.why),
)
PRICE = (
    Shown("case", lambda row: row.case),
    Shown("the mode", lambda row: row.mode or "nothing differs"),
    Shown("bits of one thread", lambda row: "another" if row.altered else "the same"),
    Shown("us", lambda row: number(1e6 * row.seconds), number=True),
    Shown("us in the mode", lambda row: number(1e6 * row.seconds_in_mode), number=True),
    Shown(
        "ratio", lambda row: f"{row.seconds_in_mode / row.seconds:.2f}" if row.seconds else "", number=True
    ),
)
LARGEST = (
    Shown("case", lambda row: row.case),
    Shown("results", lambda row: f"{row.distinct} of {row.trials}", number=True),
    Shown("V_c", lambda row: number(row.v_c), number=True),
    Shown("V_ermv", lambda row: number(row.v_ermv), number=True),
    Shown("ULP", lambda row: number(row.ulp), number=True),
    Shown("size", lambda row: "further" if row.values else "within a rounding"),
)
REFUSED = (
    Shown("case", lambda row: row.case),
    Shown("outcome", lambda row: row.outcome),
    Shown("why", lambda row: row.error),
)
COMPARED = (
    Shown("certificate", lambda row: row.run),
    Shown("against", lambda row: row.against),
    Shown("what", lambda row: row.what),
    Shown("first", lambda row: row.first),
    Shown("other", lambda row: row.other),
)


def audit_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): every testable statement of the documentation, and every difference without a statement."""
    stated = known.recorded.stated
    return _there(
        "torch's documentation of its deterministic mode", stated[stated["verdict"] != UNTESTABLE], STATED
    )


def mode_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): the price of the deterministic mode for cases whose bits it can change."""
    cases, seen = known.recorded.cases, known.recorded.seen
    altered = set(seen[(seen["change"] == "algorithm") & (seen["distinct"] > 1)]["case"])
    cases = cases.assign(altered=cases["case"].isin(altered))
    timed = cases[(cases["differs"] | cases["altered"]) & (cases["mode"] != "throws")]
    return _there("Price of the deterministic mode", timed, PRICE)


def largest_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): the largest differences from run to run."""
    seen = known.recorded.seen
    runs = seen[(seen["change"] == "runs") & (seen["distinct"] > 1)]
    runs = runs.sort_values("v_c", ascending=False, kind="stable").head(WORST)
    return _there("Largest differences from run to run", runs, LARGEST)


def refused_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): cases that could not be audited."""
    cases = known.recorded.cases
    return _there("Cases that could not be audited", cases[cases["outcome"] != "done"], REFUSED)


def compared_tables(known: Known) -> list[tuple[str, Table]]:
    """(title, table): each certificate against the first."""
    return _there("Certificates compared", known.compared, COMPARED)


def _there(title: str, rows: pd.DataFrame, columns: Sequence[Shown]) -> list[tuple[str, Table]]:
    """(title, table) of `rows`; empty without rows."""
    return [(title, lines_of(rows, columns))] if len(rows) else []


def _list(names, most: int = 12) -> str:
    """At most `most` names, and the number of others."""
    names = list(dict.fromkeys(names))
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
