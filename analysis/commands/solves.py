"""`python -m analysis solves`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, add_csv, export, frames_for_csv, without

SUMMARY = "the solves of `solver`: iterations, accuracy, and how a difference grows with the iteration"
DETAIL = """\
Only runs that recorded a residual are used: those of `solver`."""
EXAMPLES = """\
  python -m analysis solves runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> int:
    """Print what is known of the solves."""
    from analysis.page.terminal import printer
    from analysis.solves.frames import solves as frames_of
    from analysis.solves.tables import all_tables, exported, sentences, study

    frames = frames_for_csv(options)
    solves = frames_of(frames)
    if solves.solves.empty:
        raise without(frames, "a residual by iteration, as `solver` does")
    results = study(solves)
    say = printer()
    for line in sentences(results):
        say(line, bold=True)
    for table in all_tables(results):
        say(table)
    for note in results.notes:
        say(f"Note: {note}.")
    export(options, exported(results), say)
    return EQUAL
