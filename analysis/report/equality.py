"""The sections of the report on bits: groups and verdicts, where runs part, how the difference grows, variability."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

import pandas as pd

from analysis.comparison import facts, first_of_each
from analysis.divergence.cause import cause
from analysis.divergence.points import Comparison
from analysis.groups import ranks_text
from analysis.headline import BADGES
from analysis.load.frames import Frames
from analysis.matrix import ALL, matrix
from analysis.operations import audited
from analysis.overview import Overview
from analysis.page.sections import OPEN, SIGNS, Mark, Section, Table
from analysis.page.tables import alone, groups_table, variability_tables
from analysis.pairs import Pairs
from analysis.report import figures
from analysis.runs import Id, label, samples
from analysis.sentences import place
from analysis.variability import variability
from analysis.verdict import FAILED, MEANING, UNTESTED, Group, by_weight, counted

APART = (
    "Growth, variability and cost leave out the runs that compare variants, since their steps are samples: see the "
    "sections on sums."
)


def groups_sections(overview: Overview) -> list[Section]:
    """How many results each group has at each rank count, and what became of its promise."""
    if not overview.groups:
        return [Section("groups", "Groups", "No usable run.")]
    intro = (
        "A group is one problem computed by one method. Under layout and exact all its runs must have the "
        "same bits, whatever their rank count; under run those of one rank count; under none nothing is "
        "promised. Only complete runs are counted; each repeat of a launch is a run."
    )
    counts = matrix(overview.frames, overview.groups)
    rest = alone(overview.groups)
    _, groups = groups_table(overview.groups, overview.decisions)
    tables = [("", groups)] if groups.rows else []
    by_ranks = _matrix(counts, overview)
    tables += [("Different results / runs, by number of ranks", by_ranks)] if by_ranks.rows else []
    lists = [(f"{counted(len(rest), 'group')} with nothing to compare", rest)] if rest else []
    notes = [*_signs(counts), *([APART] if samples(overview.frames.runs).any() else [])]
    return [Section("groups", "Groups", "", intro, tables=tables, notes=notes, lists=lists, opened=True)]


def _matrix(counts: pd.DataFrame, overview: Overview) -> Table:
    """`matrix` as a table: a row per group that has something to compare, a column per rank count."""
    verdicts = {group.label: group.verdict for group in overview.groups}
    counts = counts[counts["group"].map(verdicts) != UNTESTED]
    sizes = sorted(set(counts["size"]) - {ALL})
    names = {size: str(size) for size in sizes} | {ALL: "all"}
    rows = []
    for group, same in counts.groupby("group", sort=False):
        cells = {row.size: _mark(row, group) for row in same.itertuples(index=False)}
        if verdicts[group] == FAILED:
            cells = {size: replace(mark, verdict=FAILED) for size, mark in cells.items()}
        name = Mark(group, "", series=overview.labels.index(group))
        rows.append((name, *(cells.get(size, "") for size in names)))
    return Table(("group", *names.values()), rows, grid=True)


def _mark(row, group: str) -> Mark:
    text = "none" if not row.runs else f"{row.runs} not compared"
    if row.distinct:
        text = f"{row.distinct} / {row.runs}"
    elif row.compared:
        text = f"{row.runs} {'differ' if row.on_the_way else 'alike'}, no results"
    on = "all rank counts" if row.size == ALL else ranks_text(row.size)
    note = f"{group}, {on}: {counted(row.distinct, 'different result')} in {counted(row.runs, 'run')}"
    if row.verdict:
        note += f"; {BADGES[row.verdict]}: {MEANING[row.verdict]}"
    if row.runs and row.compared < row.runs:
        note += f"; {row.runs - row.compared} of them with nothing to be compared with"
    if row.on_the_way and row.distinct == 1:
        text += " at the end"
        note += "; equal at the end, but not on the way"
    if row.bound == row.bound:
        note += f"; differences rarer than {row.bound:.1%} of runs would go unseen"
    return Mark(text, row.verdict, f"{note}.")


def _signs(counts: pd.DataFrame) -> list[str]:
    """What the signs of the cells mean."""
    known = dict.fromkeys(counts["verdict"])
    signs = [
        f"{SIGNS[verdict]} {BADGES[verdict]}: {meaning}"
        for verdict, meaning in MEANING.items()
        if verdict in known
    ]
    return [f"{'; '.join(signs)}. Without a sign: no promise spans rank counts."] if signs else []


def first_sections(overview: Overview) -> list[Section]:
    """Where runs that should be equal, or that a group compares, part."""
    frames, groups = overview.frames, overview.groups
    items = []
    paths = frames.runs.set_index(["run", "repeat"])["path"]
    for name, comparison, group in _shown(groups):
        a, b = comparison.a, comparison.b
        judged = cause(frames, comparison)
        judged = replace(judged, kind=group.cause_of(comparison, judged)) if judged else None
        told = facts(comparison, frames, judged, audited(frames))
        lines = [("between", f"{label(a)} and {label(b)}"), *first_of_each(told)]
        given = " ".join(shlex.quote(f"{paths[run]}:{run[1]}") for run in (a, b))
        command = f"python -m analysis divergence {given}"
        items.append((f"{name}: {place(comparison.part)}", lines, command))
    intro = (
        "The earliest step at which any run of a group has other bits than its first run; within the step "
        "the name that was recorded first, then the lowest block. Where arrival orders were recorded, the "
        "first that differs is given: it may be the cause, and orders that are equal up to the divergence "
        "rule it out."
    )
    if samples(frames.runs).any() and any(group.first for group in groups):
        intro += " In runs that compare variants a step is a sample and a block an array."
    nothing = "No group has runs that differ."
    return [
        Section(
            "divergence", "First divergence", nothing, intro if items else "", items=items, opened=bool(items)
        )
    ]


def _shown(groups: list[Group]) -> Iterator[tuple[str, Comparison, Group]]:
    """(what parted, comparison, its group): in every cell, with runs of another group, and across rank counts, the
    worst first."""
    for group in by_weight(groups):
        pairs = [(cell.label, cell.first) for cell in group.cells if cell.first]
        pairs += [(group.label, group.beside.first)] if group.beside and group.beside.first else []
        pairs += [(group.label, group.across)] if group.across else []
        yield from ((name, pair, group) for name, pair in pairs)


def variability_sections(overview: Overview) -> list[Section]:
    """How far runs lie apart at their end."""
    return [_variability(overview.stepped, overview.against, overview.pairs, overview.labels)]


def _variability(frames: Frames, against: Id | None, compared: list[Pairs], labels: list[str]) -> Section:
    frame = variability(frames, against, compared)
    if not compared:
        return Section(
            "variability",
            "Variability",
            "There are no two complete runs to compare, so nothing can be said about it.",
        )
    tables, equal = variability_tables(frame[frame["pairs"] > 0])
    if len(tables) > OPEN:
        tables = [(title, replace(table, folded=True)) for title, table in tables]
    intro = (
        "At the last step that all runs recorded. Run-to-run variation (each other) is kept apart from the difference "
        "to the reference, which also holds the change of algorithm. Only names that differ have a row. Where "
        "no difference was seen, the probability p of one per run is below the bound, with 95 % confidence."
    )
    drawn = figures.variability_figures(compared, labels)
    return Section("variability", "Variability", "", intro, drawn, tables, notes=equal)
