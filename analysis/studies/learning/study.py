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
    """The trainings that runs recorded."""
    recorded = trainings(overview.frames)
    if recorded.runs.empty:
        raise Nothing
    return known_of(recorded)


def sections(known: Known) -> list[Section]:
    """Accuracy over time and prices of wires, decisions, where the variance of the accuracy is, how far weights lie
    apart, what orders of training and inference do to outputs."""
    parts = [_decisions(known), _variance(known), _apart(known), _outputs(known)]
    return [_accuracy(known), *(part for part in parts if part.figures or part.tables)]


def _accuracy(known: Known) -> Section:
    intro = (
        "Wires are compared with gradients as they are, over the seeds that both have: at one learning rate, and each "
        "at its best, for a wire that changes the length of the gradient is a learning rate, too. In equal time: when "
        "the shortest run ended. Where no difference is seen, the tables say which one would have been (paired t test, "
        "power 80 %)."
    )
    if rest := left_out(known):
        intro += f" Figures are drawn for the first {DRAWN} families; {rest} more have tables only."
    nothing = "" if len(known.prices) else "No run that learns is complete, so no accuracies are compared."
    notes = [f"{note[:1].upper()}{note[1:]}." for note in known.notes]
    return Section(
        "learning",
        "Training: accuracy and prices of wires", nothing, " ".join([*sentences(known), intro]) * (not nothing),
        [*accuracy_figures(known), *price_figures(known)],
        folded([*price_tables(known), *comparison_tables(known)]), notes=notes,
    )  # fmt: skip


def _decisions(known: Known) -> Section:
    intro = (
        "What came of each choice of wires: the loss of the state from which the run went on less that before the next "
        "choice, per second; beside it, where wires were tried before, the same in the trial. Agreement is the rank "
        "correlation of both."
    )
    tables = folded(decision_tables(known))
    nothing = "No run decided about its wires, so there is nothing to compare with predictions."
    return Section(
        "learning-decisions",
        "Training: decisions",
        nothing,
        intro if tables else "",
        decision_figures(known),
        tables,
    )


def _variance(known: Known) -> Section:
    intro = (
        "Of the final accuracy of complete runs at one learning rate, by Henderson's method 3. What the runs do "
        "not separate is named: seeds that were always changed together, or a wire that was always added in an order "
        "of its own."
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
        "Of a sample of the weights, each run against the first of those that share all but one thing. What a seed "
        "does and what an order of additions does stand side by side; equal weights lie at the bottom."
    )
    tables = folded(apart_tables(known))
    nothing = "No two complete runs differ in one thing alone, so no weights are compared."
    return Section(
        "learning-weights",
        "Training: how far weights lie apart",
        nothing,
        intro if tables else "",
        apart_figures(known),
        tables,
    )


def _outputs(known: Known) -> Section:
    intro = (
        "A row for each pair of orders of additions, of training and of inference; runs of a row differ in orders of "
        "arrival alone. V_ermv and V_c compare each with the first of its row, medians over runs; the last columns "
        "with a run whose orders are both fixed, so that they hold the change to another order too. Distinct are "
        "known by all bits; V_ermv and V_c are of the values that were recorded: a sample of the weights, a sample "
        "or all of the log-probabilities, all predictions. `emulated` are orders of arrival of a GPU, drawn from "
        "seeds and not met; `atomic` are those in which threads of the processor came."
    )
    tables = folded(output_tables(known))
    return Section(
        "learning-outputs",
        "Training: outputs by orders of training and of inference",
        "No complete run recorded outputs, as networks of graphs do.",
        intro if tables else "",
        [],
        tables,
    )


STUDY = Study(
    read=read,
    data=(
        Data("trainings", "a row per repeat ([what they say](../explanation/training.md#what-the-analysis-says))", RUNS,
             lambda known: known.recorded.runs),
        Data("curves", "a row per evaluation", CURVES, lambda known: known.recorded.curves),
        Data("prices", "a row per line and rate, medians over runs", PRICES, lambda known: known.prices),
        Data("comparisons", "every line against the reference, paired by seeds", COMPARISONS,
             lambda known: known.comparisons),
        Data("decisions", "a row per decision about wires", DECISIONS, lambda known: known.decisions),
        Data("decided", "these by line", SUMMARY, lambda known: known.summary),
        Data("variance", "components of the final accuracy", SPLIT, lambda known: known.variance),
        Data("apart", "weights of runs that differ in one thing alone, at every evaluation", APART,
             lambda known: known.apart),
        Data("outputs", "what orders of training and of inference do, of networks that recorded outputs, a row for "
             "each pair of orders and of weights, outputs and predictions", OUTPUTS, lambda known: known.outputs),
    ),
    sentences=sentences,
    tables=all_tables,
    sections=sections,
    notes=lambda known: known.notes,
    words=lambda known: known.recorded.words,
)  # fmt: skip
