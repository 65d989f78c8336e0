"""The study of learning."""

from __future__ import annotations

import argparse

from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.studies.contract import Data, Nothing, Study
from analysis.studies.learning.apart import APART
from analysis.studies.learning.decisions import DECISIONS, SUMMARY
from analysis.studies.learning.figures import (
    DRAWN,
    accuracy_figures,
    apart_figures,
    decision_figures,
    left_out,
    price_figures,
)
from analysis.studies.learning.outputs import OUTPUTS
from analysis.studies.learning.prices import COMPARISONS, PRICES
from analysis.studies.learning.runs import CURVES, RUNS, trainings
from analysis.studies.learning.split import SPLIT
from analysis.studies.learning.tables import (
    Known,
    all_tables,
    apart_tables,
    comparison_tables,
    decision_tables,
    known_of,
    output_tables,
    price_tables,
    sentences,
    variance_tables,
)


def read(overview: Overview, options: argparse.Namespace | None) -> Known:
    """All results on the trainings of the runs."""
    recorded = trainings(overview.frames)
    if recorded.runs.empty:
        raise Nothing
    return known_of(recorded)


def sections(known: Known) -> list[Section]:
    """Accuracy over time and prices of wires, decisions, variance of the accuracy, differences of weights, and effects
    of the orders of training and inference on outputs."""
    parts = [_decisions(known), _variance(known), _apart(known), _outputs(known)]
    return [_accuracy(known), *(part for part in parts if part.figures or part.tables)]


def _accuracy(known: Known) -> Section:
    intro = (
        "Wires are compared with unencoded gradients over common seeds, at one learning rate and each at its best: a "
        "wire that changes the length of the gradient acts as a learning rate, too. In equal time means at the end of "
        "the shortest run. If no difference is seen, the tables give the detectable difference (paired t test, power "
        "80 %)."
    )
    if rest := left_out(known):
        intro += f" Figures are drawn for the first {DRAWN} families; {rest} more have tables only."
    nothing = "" if len(known.prices) else "No training is complete, so no accuracies are compared."
    notes = [f"{note[:1].upper()}{note[1:]}." for note in known.notes]
    return Section(
        "learning",
        "Training: accuracy and prices of wires", nothing, " ".join([*sentences(known), intro]) * (not nothing),
        [*accuracy_figures(known), *price_figures(known)],
        folded([*price_tables(known), *comparison_tables(known)]), notes=notes,
    )  # fmt: skip


def _decisions(known: Known) -> Section:
    intro = (
        "The outcome of each choice of wires: the decrease of the loss per second until the next choice. If the run "
        "tried the wires first, the decrease in the trial is beside it. Agreement is the rank correlation of trial and "
        "outcome."
    )
    tables = folded(decision_tables(known))
    nothing = "No run decided about its wires, so there is nothing to compare with predictions."
    return Section(
        "learning-decisions",
        "Training: choices of wires",
        nothing,
        intro if tables else "",
        decision_figures(known),
        tables,
    )


def _variance(known: Known) -> Section:
    intro = (
        "Henderson's method 3 splits the variance of the final accuracy of complete runs at one learning rate. The "
        "table names confounded factors: seeds that always change together, or a wire that always has its own order of "
        "additions."
    )
    tables = folded(variance_tables(known))
    return Section(
        "learning-variance",
        "Training: where the variance is",
        "No run is complete.",
        intro if tables else "",
        [],
        tables,
    )


def _apart(known: Known) -> Section:
    intro = (
        "Differences of a sample of the weights, between each run and the first one that differs in one factor only. "
        "They show the effect of a seed beside that of an order of additions. Equal weights are at the bottom."
    )
    tables = folded(apart_tables(known))
    nothing = "No two complete runs differ in one factor only, so no weights are compared."
    return Section(
        "learning-weights",
        "Training: differences of weights",
        nothing,
        intro if tables else "",
        apart_figures(known),
        tables,
    )


def _outputs(known: Known) -> Section:
    intro = (
        "A row for each pair of orders of additions, of training and of inference; runs of a row differ only in orders "
        "of arrival. V_ermv and V_c compare each run with the first of its row, medians over runs. The last columns "
        "compare with a run whose orders are both fixed, so they include the change of order. Distinct counts results "
        "by all bits; V_ermv and V_c use the recorded values: a sample of the weights, a sample or all of the "
        "log-probabilities, all predictions. `emulated`: orders of arrival of a GPU, drawn from seeds; `atomic`: the "
        "order in which threads of the processor arrive."
    )
    tables = folded(output_tables(known))
    return Section(
        "learning-outputs",
        "Training: outputs by orders of training and of inference",
        "No complete run recorded outputs (graph networks do).",
        intro if tables else "",
        [],
        tables,
    )


STUDY = Study(
    read=read,
    data=(
        Data("trainings", "a row per repeat ([meaning](../explanation/training.md#what-the-analysis-says))", RUNS,
             lambda known: known.recorded.runs),
        Data("curves", "a row per evaluation", CURVES, lambda known: known.recorded.curves),
        Data("prices", "a row per line and rate, medians over runs", PRICES, lambda known: known.prices),
        Data("comparisons", "every line against the reference, paired by seeds", COMPARISONS,
             lambda known: known.comparisons),
        Data("decisions", "a row per decision about wires", DECISIONS, lambda known: known.decisions),
        Data("decided", "decisions by line", SUMMARY, lambda known: known.summary),
        Data("variance", "components of the final accuracy", SPLIT, lambda known: known.variance),
        Data("apart", "differences of weights between runs that differ in one factor, at every evaluation", APART,
             lambda known: known.apart),
        Data("outputs", "effects of the orders of training and of inference in runs that recorded outputs, a row for "
             "each pair of orders, and of weights, outputs and predictions", OUTPUTS, lambda known: known.outputs),
    ),
    sentences=sentences,
    tables=all_tables,
    sections=sections,
    notes=lambda known: known.notes,
    words=lambda known: known.recorded.words,
)  # fmt: skip
