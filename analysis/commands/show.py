"""`python -m analysis show`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import BAD_USAGE, EQUAL, loaded, warn

SUMMARY = "what is recorded in runs"
DETAIL = """\
Attributes, repeats, names with their rows, steps and blocks, and the time spent in each region."""
EXAMPLES = """\
  python -m analysis show runs/a"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")


def run(options: argparse.Namespace) -> int:
    """Print what is in the runs."""
    from analysis.page.tables import run_tables
    from analysis.page.terminal import printer

    frames = loaded(options, options.runs, copies=True)
    say = printer()
    for table in run_tables(frames):
        say(table)
    warn(frames)
    return EQUAL if len(frames.runs) else BAD_USAGE
