"""The sections of the report on the launches: what differs between their environments, what was left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from analysis.attempts import repeated
from analysis.environment import differences
from analysis.limits import SEVERITIES
from analysis.overview import Overview
from analysis.page.sections import Section, Table
from analysis.verdict import counted

LISTED = 6  # runs named in a cell of a table before "and N more"


def environment_sections(overview: Overview) -> list[Section]:
    """What differs between the machines and software of the runs."""
    entries = differences(overview.frames.runs)
    title = "Differences of environment"
    if entries.empty:
        return [
            Section(
                "environments",
                title,
                "All launches report the same machine, libraries, versions and variables.",
            )
        ]
    telling = entries[entries["telling"]]
    rows = [(row.key, row.value, _several(row.runs)) for row in telling.itertuples(index=False)]
    tables = [("", Table(("entry", "value", "launches"), rows))] if rows else []
    rest = entries.loc[~entries["telling"], "key"].drop_duplicates().tolist()
    intro = f"Another value in every launch: {', '.join(rest)}." if rest else ""
    return [Section("environments", title, "Nothing else differs.", intro, tables=tables)]


def limits_sections(findings: pd.DataFrame, titles: Mapping[str, str]) -> list[Section]:
    """All that the linter found: `findings` as `analysis.lint.rules.lint` returns them, `titles` of sections by id."""
    columns = ("severity", "found", "where", "what to do", "rule", "concerns")
    rows = [
        (
            row.severity,
            f"{row.found[:1].upper()}{row.found[1:]}.",
            row.where,
            row.remedy,
            row.rule,
            titles.get(row.section, row.section),
        )
        for row in findings.itertuples(index=False)
    ]
    intro = (
        "Rules of careful benchmarking after Hoefler and Belli (SC'15), checked on these runs. An error: do not use "
        "these numbers; a warning: what is easily claimed does not follow; a note: worth knowing."
    )
    tables = [("", Table(columns, rows))] if rows else []
    nothing = "No rule has anything to say."
    return [
        Section(
            "limits",
            "What limits these results",
            nothing,
            intro if rows else "",
            tables=tables,
            summary=in_numbers(findings),
        )
    ]


def in_numbers(findings: pd.DataFrame) -> str:
    """`1 error, 2 warnings`: how many `findings` there are; empty where there are none."""
    counts = findings["severity"].value_counts(sort=False)
    return ", ".join(counted(int(counts[each]), each) for each in SEVERITIES if each in counts)


def excluded_sections(overview: Overview) -> list[Section]:
    """What was left out or is doubtful, with reason and remedy, and which failed attempts were repeated."""
    again = repeated(overview.frames)
    rows = [
        (run, what, f"{reason}; repeated with success: {again[run]}" if run in again else reason, kept)
        for run, what, _, reason, kept in overview.frames.excluded.itertuples(index=False)
    ]
    table = [("", Table(("run", "what", "reason and remedy", "used"), rows))] if rows else []
    nothing = "Nothing: every trace was read and every run ended."
    return [Section("left-out", "Left out, incomplete or failed", nothing, tables=table)]


def _several(runs: Iterable[str]) -> str:
    runs = list(runs)
    return ", ".join(runs[:LISTED]) + (f" and {len(runs) - LISTED} more" if len(runs) > LISTED else "")
