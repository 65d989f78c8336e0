"""The section of the report on how differences between runs grow with the step."""

from __future__ import annotations

from analysis.growth.runs import TOLERANCE, cell_growths, laws
from analysis.growth.table import equal_lines, growth_tables
from analysis.load.frames import Frames
from analysis.page.sections import Section, folded
from analysis.page.text import number
from analysis.report import figures
from analysis.verdict import HOLDS, SAME, Group

TITLE = "Growth of the difference"


def growth_section(frames: Frames, groups: list[Group], labels: list[str]) -> Section:
    """The growth in the cells of `groups` that differ, `labels` being the groups in the order of their colours."""
    equal = [cell for group in groups for cell in group.cells if cell.verdict in (HOLDS, SAME)]
    differ = [cell.label for group in groups for cell in group.cells if cell.first]
    differences = cell_growths(frames, differ)
    if differences.empty:
        nothing = "No runs of one group and rank count differ, so nothing grows."
        return Section(
            "growth", TITLE, " ".join([nothing, *equal_lines({cell.label: cell.runs for cell in equal})])
        )
    fitted = laws(differences, TOLERANCE)
    intro = (
        "Each run of a group that differs, against the first run of that group on as many ranks. The growth phase is "
        "the piece that rises most of a broken line through the logarithm of the median over runs; every run has a "
        "rate of its own there, and the interval is over runs, which share the first. Predicted is the step at which "
        f"the fitted growth crosses the tolerance, {number(TOLERANCE)} (half of the digits), observed that at which "
        "runs did."
    )
    tables = folded(growth_tables(fitted, TOLERANCE))
    return Section(
        "growth", TITLE, "", intro, figures.divergence_figures(differences, labels, fitted), tables
    )
