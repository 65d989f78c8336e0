"""The section of the report about answers."""

from __future__ import annotations

from analysis.inference.figures import answer_figures
from analysis.inference.frames import Answers
from analysis.inference.tables import answer_tables, sentences
from analysis.page.sections import Section, folded


def inference_sections(known: Answers) -> list[Section]:
    """Bits against speed of what answered."""
    return [
        Section(
            "Inference: bits against speed", "No run answered requests.", " ".join(sentences(known)),
            answer_figures(known), folded(answer_tables(known)),
        )
    ]  # fmt: skip
