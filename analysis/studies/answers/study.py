"""The study of answers."""

from __future__ import annotations

import argparse
from pathlib import Path

from analysis.errors import Usage
from analysis.overview import Overview
from analysis.page.sections import Section, folded
from analysis.page.svg import picture
from analysis.studies.answers.figures import answer_figures
from analysis.studies.answers.runs import ANSWERS, Answers, answers
from analysis.studies.answers.schedules import MOST, drawn, schedule_figures
from analysis.studies.answers.tables import answer_tables, findings, sentences
from analysis.studies.contract import Data, Nothing, Study
from analysis.verdict import counted

FORMS = (".svg", ".png")


def read(overview: Overview, options: argparse.Namespace | None) -> Answers:
    """The answers in the runs. Raises Usage if --schedule names another format than FORMS."""
    if options and options.schedule and options.schedule.suffix not in FORMS:
        raise Usage(f"--schedule {options.schedule}: unknown format; name a file with {' or '.join(FORMS)}")
    known = answers(overview.frames)
    if known.runs.empty:
        raise Nothing(*known.problems)
    return known


def sections(known: Answers) -> list[Section]:
    """Bits against speed of the answers; the schedules of static networks."""
    first = Section(
        "answers", "Inference: bits against speed", "No run answered requests.", " ".join(sentences(known)),
        answer_figures(known), folded(answer_tables(known)),
    )  # fmt: skip
    return [first, _schedules(known)] if known.schedules or known.problems else [first]


def _schedules(known: Answers) -> Section:
    notes = list(known.problems)
    if more := len(known.schedules) - len(drawn(known.schedules)):
        notes.append(
            f"{counted(more, 'other schedule')} not drawn; `analysis answers RUN --schedule FILE.svg` draws one"
        )
    return Section(
        "answers-schedules", "Inference: schedules", "No schedule could be drawn.",
        "The kernels of a static schedule in order, and the memory that their results share.",
        schedule_figures(known.schedules), notes=[f"{note[:1].upper()}{note[1:]}." for note in notes],
    )  # fmt: skip


def draw(known: Answers, options: argparse.Namespace) -> list[str]:
    """Draws the schedule of these runs to the file of --schedule. Raises Usage for none, or more than one."""
    file: Path | None = options.schedule
    if file is None:
        return []
    if len(known.schedules) != 1:
        there = f"{len(known.schedules)} different schedules, in {', '.join(known.schedules)}; name one run"
        none = "these runs have no schedule; `inference --backend static` records one"
        raise Usage(f"--schedule {file}: {there if known.schedules else none}")
    figures = schedule_figures(known.schedules)
    if not figures:
        raise Usage(f"--schedule {file}: the schedule has more than {MOST} kernels, too many for a picture")
    try:
        file.write_bytes(picture(figures[0], file.suffix[1:]))
    except OSError as error:
        raise Usage(f"--schedule {file}: cannot be written: {error.strerror}; choose another file") from error
    return [str(file)]


STUDY = Study(
    read=read,
    data=(Data("answers", "a row per repeat", ANSWERS, lambda known: known.runs),),
    sentences=sentences,
    tables=answer_tables,
    sections=sections,
    problems=lambda known: known.problems,
    words=lambda known: known.words,
    findings=findings,
    draw=draw,
)
