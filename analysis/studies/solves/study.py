"""The study of solves."""

from __future__ import annotations

import argparse

from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.solves import UNUSUAL
from analysis.studies.solves.figures import (
    DRAWN,
    drift_figures,
    growth_figures,
    history_figures,
    iteration_figures,
    left_out,
)
from analysis.studies.solves.growth import GROWTH
from analysis.studies.solves.pairs import CASES, DECISIONS, PAIRS
from analysis.studies.solves.rules import extrapolated
from analysis.studies.solves.runs import SAMPLES, SOLVES, solves
from analysis.studies.solves.tables import (
    Known,
    all_tables,
    case_tables,
    cases_listed,
    changed,
    decision_table,
    decisions_listed,
    findings,
    growth_tables,
    known_of,
    pair_tables,
    sentences,
)


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """All results on the recorded solves."""
    recorded = solves(overview.frames)
    if recorded.solves.empty:
        raise Nothing
    return known_of(recorded)


def facts(known: Known) -> list[str]:
    """The facts of UNUSUAL that hold."""
    table = known.recorded.solves
    so = (table["converged"] < 1).any(), table["iterations"].nunique() > 1
    return [fact for fact, holds in zip(UNUSUAL, so, strict=True) if holds]


def sections(known: Known) -> list[Section]:
    """Iterations and accuracy, first differences of histories, and growth of the difference."""
    return [_solves(known), _pairs(known), _growth(known)]


def _solves(known: Known) -> Section:
    intro = " ".join(
        [
            "A decision is the number of iterations of a solve, and whether it converged. Histories and solutions are "
            "counted by their bits. Gap is the distance between the true residual |b - Ax| / |b| and that of the "
            "recurrence at their last common iteration: the error that the recurrence does not see. Attained is the "
            "smallest true residual; for several solves, the table has the largest.",
            *(f"{note[:1].upper()}{note[1:]}." for note in known.notes),
        ]
    )
    if rest := left_out(known):
        intro += f" Figures are drawn for the first {DRAWN} families; {rest} more have tables only."
    return Section(
        "solves", "Solves: iterations and accuracy", "", intro,
        [*iteration_figures(known), *history_figures(known)], [decision_table(known), *folded(case_tables(known))],
    )  # fmt: skip


def _pairs(known: Known) -> Section:
    intro = (
        "Repeats of one case are compared with the first of them: run-to-run variation. The first solve of a case is "
        "compared with the reference, the first solve with the strongest guarantee: change of ordering, layout or "
        "kernel. First is the first iteration whose residuals differ in bits."
    )
    nothing = (
        "There are no two complete solves of one problem by one method, so no histories can be compared."
    )
    figures, tables = drift_figures(known), folded(pair_tables(known))
    title = "Solves: first differences of histories"
    return Section("solves-histories", title, nothing, intro if figures or tables else "", figures, tables)


def _growth(known: Known) -> Section:
    intro = (
        "Solves with injected orders of addition run in lock step with a solve by exact sums: the difference is the "
        "relative distance of their iterates. A broken line through the logarithm of the median gives the growth "
        "phase: the piece that rises most. Each sample has its own rate there; the interval is over samples. The "
        "fitted growth crosses the tolerance of the solver at the predicted iteration, the samples at the observed one."
    )
    nothing = "No run has a drift study (--drift N), so the growth with the iteration is unknown."
    figures, tables = growth_figures(known), folded(growth_tables(known))
    title = "Solves: growth of the difference"
    return Section("solves-growth", title, nothing, intro if figures or tables else "", figures, tables)


STUDY = Study(
    read=read,
    data=(
        Data("solves", "a row per repeat", SOLVES, lambda known: known.recorded.solves),
        Data("cases", "a row per case", CASES, cases_listed),
        Data("decisions", "a row per family", DECISIONS, decisions_listed),
        Data("pairs", "a row per comparison of complete solves", PAIRS, lambda known: known.pairs),
        Data("growth", "the law of the drift study: columns as in `laws` of `growth`, with iterations for steps",
             GROWTH, lambda known: known.growth),
        Data("samples", "the drift study, a row per sample and iteration", SAMPLES,
             lambda known: known.recorded.samples),
    ),
    sentences=sentences,
    tables=all_tables,
    sections=sections,
    notes=lambda known: known.notes,
    words=lambda known: known.recorded.words,
    findings=findings,
    judged=changed,
    rules=(extrapolated,),
    facts=facts,
)  # fmt: skip
