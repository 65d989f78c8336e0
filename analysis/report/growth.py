"""How differences between runs grow with the step: tables for the terminal, the section of the report."""

from __future__ import annotations

import pandas as pd

from analysis.growth.runs import TOLERANCE, cell_growths, equal_cells, laws
from analysis.growth.table import law_table
from analysis.load.frames import Frames
from analysis.page.sections import Section, Table, folded
from analysis.power import power_note
from analysis.report import figures
from analysis.terminal import number
from analysis.verdict import HOLDS, SAME, Group

TITLE = "Growth of the difference"


def growth_tables(found: pd.DataFrame, tolerance: float) -> list[tuple[str, Table]]:
    """(title, table) of the laws `found` by cell: values against `tolerance`, and blocks."""
    tables = []
    for (cell, reference), same in found.groupby(["cell", "reference"], sort=False):
        for kind, what in (
            ("values", f"largest relative difference, tolerance {number(tolerance)}"),
            ("fingerprints", "fraction of blocks that differ, tolerance: half of them"),
        ):
            some = same[same["kind"] == kind]
            if len(some):
                title = f"{cell}, against {reference}: {what}"
                tables.append((title, law_table(some, {"name": "name"}, unit="step")))
    return tables


def growth_section(frames: Frames, groups: list[Group], labels: list[str]) -> Section:
    """The growth in the cells of `groups` that differ, `labels` being the groups in the order of their colours."""
    equal = [cell for group in groups for cell in group.cells if cell.verdict in (HOLDS, SAME)]
    differ = [cell.label for group in groups for cell in group.cells if cell.first]
    found = cell_growths(frames, differ)
    if found.empty:
        same = "; ".join(f"{cell.label}: {power_note(cell.runs)}" for cell in equal)
        return Section(
            TITLE, "No group has runs that differ, so nothing grows." + (f" {same}." if same else "")
        )
    fitted = laws(found, TOLERANCE)
    intro = (
        "Each run of a group that differs, against the first run of that group on as many ranks. The growth phase is "
        "the piece that rises most of a broken line through the logarithm of the median over runs; every run has a "
        "rate of its own there, and the interval is over runs, which share the first. Predicted is the step at which "
        f"the fitted growth crosses the tolerance, {number(TOLERANCE)} (half of the digits), observed that at which "
        "runs did."
    )
    tables = folded(growth_tables(fitted, TOLERANCE))
    return Section(TITLE, "", intro, figures.divergence_figures(found, labels, fitted), tables)


def equal_lines(found: pd.DataFrame) -> list[str]:
    """What there is to say of the cells in which nothing grows since no run differs."""
    return [
        f"{cell}: no difference at any step; {power_note(runs)}." for cell, runs in equal_cells(found).items()
    ]
