"""The sections of the report about trainings."""

from __future__ import annotations

from analysis.page.sections import Section, folded
from analysis.training.figures import (
    DRAWN,
    accuracy_figures,
    apart_figures,
    decision_figures,
    left_out,
    price_figures,
)
from analysis.training.tables import (
    Study,
    apart_tables,
    comparison_tables,
    decision_tables,
    output_tables,
    poster_tables,
    price_tables,
    sentences,
    variance_tables,
    verdicts,
)


def training_sections(results: Study) -> list[Section]:
    """Accuracy over time and prices of wires, decisions, where the variance of the accuracy is, how far weights lie
    apart, what orders of training and inference do to outputs, the published table of wires."""
    parts = [_decisions(results), _variance(results), _apart(results), _outputs(results), _poster(results)]
    return [_accuracy(results), *(part for part in parts if part.figures or part.tables)]


def _accuracy(results: Study) -> Section:
    intro = (
        "Wires are compared with gradients as they are, over the seeds that both have: at one learning rate, and each "
        "at its best, for a wire that changes the length of the gradient is a learning rate, too. In equal time: when "
        "the shortest run ended. Where no difference is seen, the tables say which one would have been (paired t test, "
        "power 80 %)."
    )
    if rest := left_out(results):
        intro += f" Figures are drawn for the first {DRAWN} families; {rest} more have tables only."
    nothing = "" if len(results.prices) else "No run that learns is complete, so no accuracies are compared."
    notes = [f"{note[:1].upper()}{note[1:]}." for note in results.notes]
    return Section(
        "learning",
        "Training: accuracy and prices of wires", nothing, " ".join([*sentences(results), intro]) * (not nothing),
        [*accuracy_figures(results), *price_figures(results)],
        folded([*price_tables(results), *comparison_tables(results)]), notes=notes,
    )  # fmt: skip


def _decisions(results: Study) -> Section:
    intro = (
        "What came of each choice of wires: the loss of the state from which the run went on less that before the next "
        "choice, per second; beside it, where wires were tried before, the same in the trial. Agreement is the rank "
        "correlation of both."
    )
    tables = folded(decision_tables(results))
    nothing = "No run decided about its wires, so there is nothing to compare with what was predicted."
    return Section(
        "learning-decisions",
        "Training: decisions",
        nothing,
        intro if tables else "",
        decision_figures(results),
        tables,
    )


def _variance(results: Study) -> Section:
    intro = (
        "Of the final accuracy of complete runs at one learning rate, by Henderson's method 3. What the runs do "
        "not separate is named: seeds that were always changed together, or a wire that was always added in an order "
        "of its own."
    )
    tables = folded(variance_tables(results))
    return Section(
        "learning-variance",
        "Training: where the variance is",
        "No run is complete.",
        intro if tables else "",
        [],
        tables,
    )


def _apart(results: Study) -> Section:
    intro = (
        "Of a sample of the weights, each run against the first of those that share all but one thing. What a seed "
        "does and what an order of additions does stand side by side; equal weights lie at the bottom."
    )
    tables = folded(apart_tables(results))
    nothing = "No two complete runs differ in one thing alone, so no weights are compared."
    return Section(
        "learning-weights",
        "Training: how far weights lie apart",
        nothing,
        intro if tables else "",
        apart_figures(results),
        tables,
    )


def _outputs(results: Study) -> Section:
    intro = (
        "A row for each pair of orders of additions, of training and of inference; runs of a row differ in orders of "
        "arrival alone. V_ermv and V_c compare each with the first of its row, medians over runs; the last columns "
        "with a run whose orders are both fixed, so that they hold the change to another order too. Distinct are "
        "results by all bits; V_ermv and V_c are of the values that were recorded: a sample of the weights, a sample "
        "or all of the log-probabilities, all predictions. `emulated` are orders of arrival of a GPU, drawn from "
        "seeds and not met; `atomic` are those in which threads of the processor came."
    )
    tables = folded(output_tables(results))
    return Section(
        "learning-outputs",
        "Training: outputs by orders of training and of inference",
        "No complete run recorded outputs, as networks of graphs do.",
        intro if tables else "",
        [],
        tables,
    )


def _poster(results: Study) -> Section:
    intro = (
        f"{verdicts(results)} The published accuracies are those of another network and other data (CaffeNet, 16 "
        "classes, 4 GPUs): float 73.6, fp8 71.9, Table-1 60.1, Fastest 72.3, AdaPrec 74.4 %. A claim holds where the "
        "95 % interval of our difference lies on the published side of 0; it does not where it lies on the other side, "
        "or where no difference is seen although the published one would have been."
    )
    tables = folded(poster_tables(results))
    nothing = "No run used a wire or a policy of the published table."
    return Section(
        "learning-poster", "Training: a published table", nothing, intro if tables else "", [], tables
    )
