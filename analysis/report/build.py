"""The report: frames in, one HTML file out that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pandas as pd

from analysis import terminal
from analysis.divergence import growths
from analysis.environment import differences
from analysis.groups import grouped
from analysis.load.frames import Frames
from analysis.regions import cost_summary, costs, regions, summary
from analysis.report import figures
from analysis.report.sections import Section, Table
from analysis.report.svg import GLYPHS, SERIES
from analysis.solves.frames import solves
from analysis.solves.sections import solves_sections
from analysis.solves.tables import changed, study
from analysis.sums.frames import APP
from analysis.sums.sections import sums_sections
from analysis.terminal import number
from analysis.variability import Id, ids, label, pairs, variability
from analysis.verdict import (
    MEANING,
    Group,
    by_weight,
    clause,
    counted,
    doubts,
    judge,
    place,
    sentence,
)

FOLD_FROM = 24  # rows
LISTED = 6  # runs named in a cell of a table before "and N more"


@dataclass(frozen=True)
class Report:
    """The HTML text, and what else is worth saying in a terminal."""

    html: str
    verdict: str
    groups: list[Group]


def build(frames: Frames, against: Id | None = None) -> Report:
    """The report on all runs of `frames`; `against` is the run that all are compared with (None: chosen)."""
    import jinja2

    groups = judge(frames)
    labels = [group.label for group in groups]
    solved = solves(frames)
    made = study(solved) if len(solved.solves) else None
    decisions = changed(made) if made else []
    verdict = sentence(groups, frames, decisions)
    stepped = _stepped(frames)
    found = pairs(stepped, against)
    launches = frames.runs["run"].nunique()
    sections = [
        _groups(groups),
        _first(frames, groups),
        _said(frames, _growth(stepped, groups, labels)),
        _said(frames, _variability(stepped, against, found, labels)),
        _times(frames, labels),
        _said(frames, _costs(stepped, labels)),
        *sums_sections(frames),
        *(solves_sections(made) if made else []),
        _environment(frames),
        _excluded(frames),
    ]
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("analysis.report"), autoescape=True, undefined=jinja2.StrictUndefined,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    html = environment.get_template("report.html.j2").render(
        verdict=verdict,
        lead=counted(len(groups), "group") if groups else "No group",
        clauses=[*((group.label, group.verdict, clause(group)) for group in by_weight(groups)), *decisions],
        doubts=doubts(frames),
        sections=sections,
        meaning=MEANING,
        scope=f"{counted(len(frames.runs), 'run')} from {launches} launch{'es' if launches != 1 else ''}",
        now=f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        glyphs=GLYPHS,
        series=len(SERIES),
    )
    return Report(html, verdict, groups)


def _stepped(frames: Frames) -> Frames:
    """`frames` with the runs whose steps follow from each other: those of `reductions` have samples for steps."""
    return replace(frames, runs=frames.runs[(frames.runs["app"] != APP).to_numpy()].reset_index(drop=True))


def _said(frames: Frames, section: Section) -> Section:
    """`section` with a sentence on the runs of `reductions` that it leaves out, where there are such."""
    if not (frames.runs["app"] == APP).any():
        return section
    others = (frames.runs["app"] != APP).any()
    apart = f"Runs of {APP} are left out here, since their steps are samples: see the sections on sums."
    shown = section.figures or section.tables or section.items
    text = [section.intro if shown else section.nothing or section.intro] if others else []
    return replace(section, intro=" ".join([*text, apart]), nothing="")


def _groups(groups: list[Group]) -> Section:
    columns = (
        "group",
        "guarantee",
        "ordering",
        "ranks",
        "runs",
        "distinct results",
        "final state",
        "verdict",
    )
    rows = [
        (
            g.label, g.guarantee, g.ordering, ", ".join(map(str, g.sizes)), g.runs, g.distinct or "-",
            g.state[:16] or ("several" if g.distinct > 1 else "-"), g.verdict,
        )
        for g in groups
    ]  # fmt: skip
    intro = (
        "A group is one problem computed by one method. Under layout and exact all its runs must have the "
        "same bits, whatever their rank count; under run those of one rank count; under none nothing is "
        "promised. Only complete runs are counted; each repeat of a launch is a run."
    )
    return Section(
        "Groups", "No usable run.", intro, tables=[("", Table(columns, rows, ("runs", "distinct results")))]
    )


def _first(frames: Frames, groups: list[Group]) -> Section:
    items = []
    paths = frames.runs.set_index(["run", "repeat"])["path"]
    for cell in (cell for group in groups for cell in group.cells if cell.first):
        a, b = cell.first.a, cell.first.b
        lines = [("between", f"{label(a)} and {label(b)}"), *terminal.facts(cell.first, frames)]
        command = f"python -m analysis divergence {paths[a]}:{a[1]} {paths[b]}:{b[1]}"
        items.append((f"{cell.label}: {place(cell.first.first)}", lines, command))
    intro = (
        "The earliest step at which any run of a group has other bits than its first run; within the step "
        "the name that was recorded first, then the lowest block. Where arrival orders were recorded, the "
        "first that differs is given: it may be the cause, and orders that are equal up to the divergence "
        "rule it out."
    )
    if any(group.label.startswith(f"{APP} ") and group.first for group in groups):
        intro += f" In runs of {APP} a step is a sample and a block an array."
    return Section("First divergence", "No group has runs that differ.", intro if items else "", items=items)


def _growth(frames: Frames, groups: list[Group], labels: list[str]) -> Section:
    runs = grouped(frames.runs)
    pieces = []
    for group in groups:
        for cell in group.cells:
            if cell.first is None:
                continue
            own = ids(runs[(runs["cell"] == cell.label) & runs["complete"]])
            if not own:  # of an app that `frames` leaves out
                continue
            pieces.append(growths(frames, own[0], own[1:]).assign(group=group.label))
    if not pieces:
        return Section("Growth of the difference", "No group has runs that differ, so nothing grows.")
    every = pd.concat(pieces, ignore_index=True)
    intro = "Each run of a group that differs, against the first run of that group on as many ranks."
    return Section("Growth of the difference", "", intro, figures.divergence_figures(every, labels))


def _variability(frames: Frames, against: Id | None, found: pd.DataFrame, labels: list[str]) -> Section:
    frame = variability(frames, against, found)
    if found.empty:
        return Section(
            "Variability", "There are no two complete runs to compare, so nothing can be said about it."
        )
    columns = (
        "name",
        "against",
        "pairs",
        "distinct",
        "effective",
        "max |V_s|",
        "V_ermv",
        "V_c",
        "max ULP",
        "p at 95 %",
    )
    tables = []
    for cell, same in frame.groupby("cell", sort=False):
        rows = [
            (
                row.name, row.against, row.pairs, f"{row.distinct} of {row.runs}", number(row.effective),
                number(row.v_s_max), number(row.v_ermv_mean), number(row.v_c_mean), number(row.ulp_max),
                f"< {row.bound:.1%}" if row.bound == row.bound else "",
            )
            for row in same.itertuples(index=False)
            if row.pairs
        ]  # fmt: skip
        if rows:
            same_bits = not (same["v_c_max"] > 0).any()
            title = f"{cell}: no difference in any name" if same_bits else cell
            tables.append((title, Table(columns, rows, columns[2:], folded=same_bits)))
    intro = (
        "At the last step that all runs recorded. Run-to-run variation (against each other) is kept apart "
        "from the difference to the reference, which also holds the change of algorithm. The last column "
        "is filled where no difference was seen: with 95 % confidence the probability of one per run is "
        "below it."
    )
    return Section("Variability", "", intro, figures.variability_figures(found, labels), tables)


def _times(frames: Frames, labels: list[str]) -> Section:
    measured = regions(frames)
    medians = summary(measured)
    if medians.empty:
        return Section("Wall time per region", "No times were recorded (--trace off), or no run is complete.")
    columns = (
        "region",
        "group",
        "ranks",
        "runs",
        "calls",
        "s inclusive",
        "s exclusive",
        "share",
        "imbalance",
    )
    rows = [
        (
            row.name, row.group, row.size, row.runs, int(row.calls), number(row.total_s),
            number(row.exclusive_s), f"{row.share:.1%}", f"{row.imbalance:.1%}",
        )
        for row in medians.itertuples(index=False)
    ]  # fmt: skip
    intro = (
        "Inclusive time is spent inside a region, exclusive time inside it and in no region within it; "
        "both are means over ranks, and medians over runs. Share is exclusive time over the wall time of "
        "the run. Imbalance is the slowest rank over the mean, less one."
    )
    table = ("All regions", Table(columns, rows, columns[2:], folded=len(rows) > FOLD_FROM))
    return Section("Wall time per region", "", intro, figures.time_figures(measured, labels), [table])


def _costs(frames: Frames, labels: list[str]) -> Section:
    points = costs(frames)
    runs = grouped(frames.runs)
    runs = runs[runs["complete"] & runs["wall_s"].notna()]
    intro = "No two groups were measured on the same problem and rank count, so no cost can be given."
    tables = []
    if len(points):
        columns = ("group", "ranks", "runs", "median, s", "relative", "lowest", "highest", "relative to")
        rows = [
            (
                row.group, row.size, row.runs, number(row.median_s), f"{row.relative:.3f}",
                f"{row.lowest:.3f}", f"{row.highest:.3f}", f"{row.base} (n = {row.base_runs})",
            )
            for row in cost_summary(points).itertuples(index=False)
        ]  # fmt: skip
        tables = [("", Table(columns, rows, columns[1:7]))]
        intro = "Medians of whole repeats; with few runs read the points, not the third digit."
    return Section("Cost of the guarantees", "", intro, figures.cost_figures(points, runs, labels), tables)


def _environment(frames: Frames) -> Section:
    found = differences(frames.runs)
    title = "Differences of environment"
    if found.empty:
        return Section(title, "All launches report the same machine, libraries, versions and variables.")
    telling = found[found["telling"]]
    rows = [(row.key, row.value, _several(row.runs)) for row in telling.itertuples(index=False)]
    tables = [("", Table(("entry", "value", "launches"), rows))] if rows else []
    rest = found.loc[~found["telling"], "key"].drop_duplicates().tolist()
    intro = f"Another value in every launch: {', '.join(rest)}." if rest else ""
    return Section(title, "Nothing else differs.", intro, tables=tables)


def _excluded(frames: Frames) -> Section:
    rows = list(frames.excluded[["run", "what", "reason", "kept"]].itertuples(index=False, name=None))
    table = [("", Table(("run", "what", "reason and remedy", "used"), rows))] if rows else []
    return Section(
        "Left out, incomplete or failed", "Nothing: every trace was read and every run ended.", tables=table
    )


def _several(runs: Iterable[str]) -> str:
    runs = list(runs)
    return ", ".join(runs[:LISTED]) + (f" and {len(runs) - LISTED} more" if len(runs) > LISTED else "")
