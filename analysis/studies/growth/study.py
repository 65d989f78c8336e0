"""The study of growth."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import pandas as pd

from analysis.overview import Overview
from analysis.page.sections import Section, Table, folded
from analysis.page.text import number
from analysis.runs import samples
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.growth import TOLERANCE
from analysis.studies.growth.figures import divergence_figures
from analysis.studies.growth.runs import GROWN, LAWS, alone, cell_growths, equal_cells, laws
from analysis.studies.growth.tables import equal_lines, growth_tables
from analysis.verdict import HOLDS, SAME

TITLE = "Growth of the difference"


@dataclass(frozen=True)
class Known:
    """`differences` of the cells and the `laws` fitted to them for `tolerance`, from the functions of `runs`; `equal`
    {cell: runs} of cells without a difference; `alone`: cells with one run; `labels` of all groups, in the order of
    their colours."""

    differences: pd.DataFrame
    laws: pd.DataFrame
    tolerance: float
    equal: dict[str, int]
    alone: list[str]
    labels: list[str]


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """The growth in all cells; for the report, only in cells whose verdict is that they differ."""
    frames = overview.frames
    if options:
        if samples(frames.runs).all():
            raise Nothing
        differences, tolerance, labels = cell_growths(frames), options.tolerance, []
        equal = equal_cells(differences)
    else:
        cells = [cell for group in overview.groups for cell in group.cells]
        differences = cell_growths(frames, {cell.label for cell in cells if cell.first})
        equal = {cell.label: cell.runs for cell in cells if cell.verdict in (HOLDS, SAME)}
        tolerance, labels = TOLERANCE, overview.labels
    return Known(differences, laws(differences, tolerance), tolerance, equal, alone(frames), labels)


def tables(known: Known) -> list[tuple[str, Table]]:
    """The laws of each cell."""
    return growth_tables(known.laws, known.tolerance, known.differences)


def sections(known: Known) -> list[Section]:
    """The growth in the cells that differ."""
    if known.differences.empty:
        nothing = "No runs of one group and rank count differ, so nothing grows."
        return [Section("growth", TITLE, " ".join([nothing, *equal_lines(known.equal)]))]
    intro = (
        "Each run of a differing group is compared with the first run of that group on the same number of ranks. A "
        "broken line through the logarithm of the median over runs gives the growth phase: the piece that rises most. "
        "Each run has its own rate there; the interval is over runs, which share the first. The fitted growth crosses "
        f"the tolerance, {number(known.tolerance)} (half of the digits), at the predicted step; the runs crossed it at "
        "the observed one."
    )
    figures = divergence_figures(known.differences, known.labels, known.laws)
    return [Section("growth", TITLE, "", intro, figures, folded(tables(known)))]


def notes(known: Known) -> list[str]:
    """A note on each cell without a comparison."""
    return [
        f"{cell}: fewer than two complete runs, nothing to compare; run with --repeats 7 for a rate with interval"
        for cell in known.alone
    ]


STUDY = Study(
    read=read,
    data=(
        Data("laws", "a row per cell and name that differs "
             "([what it says](../how-to/growth.md))", LAWS, lambda known: known.laws),
        Data("growth", "a row per run, step and name, against the reference", GROWN, lambda known: known.differences),
    ),
    sentences=lambda known: equal_lines(known.equal),
    tables=tables,
    sections=sections,
    notes=notes,
)  # fmt: skip
