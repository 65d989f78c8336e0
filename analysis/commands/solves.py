"""`python -m analysis solves`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, Usage, add_csv, export, of_app

SUMMARY = "the solves of `solver`: iterations, accuracy, and how a difference grows with the iteration"
DETAIL = """\
Only runs of `solver` are used."""
EXAMPLES = """\
  python -m analysis solves runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> int:
    """Print what is known of the solves of `solver`."""
    from analysis import terminal
    from analysis.solves.frames import APP
    from analysis.solves.frames import solves as frames_of
    from analysis.solves.tables import all_tables, exported, said, study

    found = frames_of(of_app(options, APP))
    if found.solves.empty:
        raise Usage(f"the runs of {APP} recorded no residual; look at them with `show`, or repeat them")
    made = study(found)
    say = terminal.printer()
    for line in said(made):
        say(line, bold=True)
    for title, table in all_tables(made):
        say(terminal.table(title, table.columns, table.rows, table.numbers))
    for note in made.notes:
        say(f"Note: {note}.")
    export(options, exported(made), say)
    return EQUAL
