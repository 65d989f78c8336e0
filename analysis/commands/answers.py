"""`python -m analysis answers`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import Usage, add_csv, frames_for_csv, tell_problems, without

if TYPE_CHECKING:
    from analysis.inference.frames import Answers

SUMMARY = "networks that answer requests: does a result depend on the request, and what does a backend cost"
DETAIL = "Only runs that recorded how many results each image got are used: those of `inference`."
EXAMPLES = """\
  python -m analysis answers runs/
  python -m analysis answers runs/static --schedule schedule.svg"""
FORMS = (".svg", ".png")


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument(
        "--schedule", type=Path, metavar="FILE",
        help="draw the static schedule there, .svg or .png: kernels over time, and the memory that they share",
    )  # fmt: skip
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What is known of the answers."""
    from analysis.inference.frames import answers
    from analysis.inference.tables import answer_tables, sentences
    from analysis.page.words import tables_in_words

    if options.schedule and options.schedule.suffix not in FORMS:
        raise Usage(f"--schedule {options.schedule}: a picture is {' or '.join(FORMS)}; name such a file")
    frames = frames_for_csv(options)
    known = answers(frames)
    if known.runs.empty:
        raise without(frames, "results of images, as `inference` does")
    tell_problems(known.problems)
    files = _draw(known, options.schedule) if options.schedule else []
    shown: list[Shown] = [*map(Bold, sentences(known)), *tables_in_words(answer_tables(known), known.words)]
    notes = [f"Schedule: {file}" for file in files]
    return Answer(frames, {"answers": known.runs}, shown, notes, files=files)


def _draw(known: Answers, file: Path) -> list[str]:
    """Draw the one schedule of these runs into `file`. Raises Usage where there is none, or more than one."""
    from analysis.inference.schedules import MOST, schedule_figures
    from analysis.page.svg import picture

    if len(known.schedules) != 1:
        there = f"{len(known.schedules)} different schedules, of {', '.join(known.schedules)}: name one"
        none = "no schedule: these runs have none; `inference --backend static` records one"
        raise Usage(f"--schedule {file}: {there if known.schedules else none}")
    figures = schedule_figures(known.schedules)
    if not figures:
        raise Usage(f"--schedule {file}: more than {MOST} kernels cannot be told apart in a picture")
    try:
        file.write_bytes(picture(figures[0], file.suffix[1:]))
    except OSError as error:
        raise Usage(f"--schedule {file}: cannot be written: {error.strerror}; choose another file") from error
    return [str(file)]
