"""`python -m analysis solves`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import add_csv, frames_for_csv, without

SUMMARY = "the solves of `solver`: iterations, accuracy, and how a difference grows with the iteration"
DETAIL = """\
Only runs that recorded a residual are used: those of `solver`."""
EXAMPLES = """\
  python -m analysis solves runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What is known of the solves."""
    from analysis.page.words import tables_in_words
    from analysis.solves.frames import solves as frames_of
    from analysis.solves.tables import all_tables, exported, sentences, study

    frames = frames_for_csv(options)
    solves = frames_of(frames)
    if solves.solves.empty:
        raise without(frames, "a residual by iteration, as `solver` does")
    results = study(solves)
    shown: list[Shown] = [
        *map(Bold, sentences(results)),
        *tables_in_words(all_tables(results), results.recorded.words),
    ]
    return Answer(frames, exported(results), shown, [f"Note: {note}." for note in results.notes])
