"""The sections of the report about answers."""

from __future__ import annotations

from analysis.inference.figures import answer_figures
from analysis.inference.frames import Answers
from analysis.inference.schedules import drawn, schedule_figures
from analysis.inference.tables import answer_tables, sentences
from analysis.page.sections import Section, folded
from analysis.verdict import counted


def inference_sections(known: Answers) -> list[Section]:
    """Bits against speed of what answered; the schedules of static networks."""
    answers = Section(
        "answers", "Inference: bits against speed", "No run answered requests.", " ".join(sentences(known)),
        answer_figures(known), folded(answer_tables(known)),
    )  # fmt: skip
    return [answers, _schedules(known)] if known.schedules or known.problems else [answers]


def _schedules(known: Answers) -> Section:
    notes = list(known.problems)
    if more := len(known.schedules) - len(drawn(known.schedules)):
        notes.append(
            f"{counted(more, 'other schedule')} not drawn; `analysis answers RUN --schedule FILE.svg` draws one"
        )
    return Section(
        "answers-schedules", "Inference: schedules", "No schedule could be drawn.",
        "Kernels of a static schedule in their order, and the memory that their results share.",
        schedule_figures(known.schedules), notes=[f"{note[:1].upper()}{note[1:]}." for note in notes],
    )  # fmt: skip
