"""The sections of the report about solves."""

from __future__ import annotations

from analysis.page.sections import Section, folded
from analysis.solves.figures import (
    DRAWN,
    drift_figures,
    growth_figures,
    history_figures,
    iteration_figures,
    left_out,
)
from analysis.solves.tables import Study, case_tables, decision_table, growth_tables, pair_tables


def solves_sections(results: Study) -> list[Section]:
    """Iterations and accuracy, where histories part, and growth of the difference of the solves."""
    return [_solves(results), _pairs(results), _growth(results)]


def _solves(results: Study) -> Section:
    intro = " ".join(
        [
            "A decision is after how many iterations a solve stops, and whether it has converged. Histories and "
            "solutions are counted by their bits. Gap is the distance of the true residual |b - Ax| / |b| from that "
            "of the recurrence at the last iteration that has both: what the recurrence does not know of. Attained is "
            "the smallest true residual; of several solves the largest is given.",
            *(f"{note[:1].upper()}{note[1:]}." for note in results.notes),
        ]
    )
    if rest := left_out(results):
        intro += f" Figures are drawn for the first {DRAWN} families; {rest} more have tables only."
    return Section(
        "solves",
        "Solves: iterations and accuracy", "", intro, [*iteration_figures(results), *history_figures(results)],
        [decision_table(results), *folded(case_tables(results))],
    )  # fmt: skip


def _pairs(results: Study) -> Section:
    intro = (
        "Repeats of one case against the first of them: variation from run to run. The first solve of a case against "
        "the reference, the first solve of the strongest guarantee: change of ordering, layout or kernel. First is the "
        "first iteration whose residual has other bits."
    )
    nothing = (
        "There are no two complete solves of one problem by one method, so no histories can be compared."
    )
    figures, tables = drift_figures(results), folded(pair_tables(results))
    return Section(
        "solves-histories",
        "Solves: where histories part",
        nothing,
        intro if figures or tables else "",
        figures,
        tables,
    )


def _growth(results: Study) -> Section:
    intro = (
        "Solves by injected orders of addition in lock step with one by exact sums: the relative distance "
        "of the iterates. The growth phase is the piece that rises most of a broken line through the "
        "logarithm of the median; every sample has a rate of its own there, and the interval is over samples. "
        "Predicted is where the fitted growth crosses the tolerance of the solver, observed where samples did."
    )
    nothing = "No run has a drift study (--drift N), so nothing is known of the growth with the iteration."
    figures, tables = growth_figures(results), folded(growth_tables(results))
    return Section(
        "solves-growth",
        "Solves: growth of the difference",
        nothing,
        intro if figures or tables else "",
        figures,
        tables,
    )
