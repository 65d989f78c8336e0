"""`python -m analysis variability`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, add_reference, frames_of, warn

SUMMARY = "how many results there are, and how far they lie apart"
DETAIL = """"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_reference(parser)


def run(options: argparse.Namespace) -> int:
    """Print the table of variability."""
    from analysis import terminal
    from analysis.variability import variability
    from analysis.verdict import judge, sentence

    frames, against = frames_of(options)
    say = terminal.printer()
    say(sentence(judge(frames), frames), bold=True)
    say()
    for renderable in terminal.variability_tables(variability(frames, against)):
        say(renderable)
    warn(frames)
    return EQUAL
