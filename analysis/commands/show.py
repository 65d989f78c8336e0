"""`python -m analysis show`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer
from analysis.commands.choice import loaded, none_usable, warn

SUMMARY = "what is recorded in runs"
DETAIL = """\
Attributes, repeats, names with their rows, steps and blocks, and the time spent in each region. Of programs under
`fpna run` also the functions that were called and not recorded, and the sums that a guarantee did not reach."""
EXAMPLES = """\
  python -m analysis show runs/a"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")


def run(options: argparse.Namespace) -> Answer:
    """What is in the runs."""
    from analysis.page.tables import run_frames, run_tables

    frames = loaded(options, options.runs, copies=True)
    warn(frames)
    if frames.runs.empty:
        raise none_usable(options)
    shown = run_frames(frames)
    return Answer(frames, shown, list(run_tables(shown)))
