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
    from analysis import terminal

    frames = loaded(options, options.runs, copies=True)
    say = terminal.printer()
    for renderable in terminal.show(frames):
        say(renderable)
    warn(frames)
    return EQUAL if len(frames.runs) else BAD_USAGE
