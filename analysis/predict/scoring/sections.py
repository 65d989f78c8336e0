"""The section of the report about predictions."""

from __future__ import annotations

from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.predict.scoring.figures import error_figures, measured_figures
from analysis.predict.scoring.tables import all_tables, sentences
from analysis.verdict import counted

TITLE = "Predicted and measured times"


def predict_sections(overview: Overview) -> list[Section]:
    """The section that compares the ledger's predictions with measured times; none without a ledger."""
    if overview.ledger is None or overview.score is None:
        return []
    score, ledger = overview.score, overview.ledger
    begin = " ".join(f"{text[:1].upper()}{text[1:]}." for text in sentences(score))
    intro = (
        f"{begin} A run counts only if a hash in its trace proves that its prediction is older. The error is "
        "exp(mean |ln(measured / predicted)|) - 1, of the predicted median. The floor is the spread between runs of "
        "one configuration: above 10 %, an error says nothing. The CRPS compares the whole predicted distribution with "
        "the measured time."
    )
    if len(score.prices):
        intro += (
            " The price of a guarantee is the time of a step under it, over the time under the weakest guarantee that "
            "was predicted and run."
        )
    notes = [f"{note[:1].upper()}{note[1:]}." for note in score.notes]
    left_out = [*score.refused, *score.unmeasured]
    lists = [(f"{counted(len(left_out), 'run')} not scored", left_out)] if left_out else []
    tables = all_tables(score, ledger)
    nothing = "" if tables else f"{ledger.path} has no rows, so nothing was predicted."
    return [
        Section(
            "predictions",
            TITLE, nothing, intro if tables else "", [*measured_figures(score), *error_figures(score)], folded(tables),
            notes=notes, lists=lists,
        )
    ]  # fmt: skip
