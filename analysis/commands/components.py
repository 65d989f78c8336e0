"""`python -m analysis components`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, frames_for_csv
from analysis.errors import Usage

SUMMARY = "where the variance is: between allocations, nodes, launches or repeats, apart from the algorithm"
DETAIL = """\
Of the wall time and of the final value of every global quantity, over all complete runs of a problem: which part
of the variance each factor has, with bootstrap intervals. Factors that the design does not separate are named."""
EXAMPLES = """\
  python -m analysis components runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """The variance components."""
    from analysis.components.study import components
    from analysis.components.tables import component_tables, notes, sentences

    frames = frames_for_csv(options)
    if not frames.runs["complete"].any():
        raise Usage("no complete run among these, so nothing can be said of their variance; repeat one")
    frame = components(frames)
    shown: list[Part] = [*map(Bold, sentences(frame)), *component_tables(frame)]
    return Answer(frames, {"components": frame}, shown, [f"Note: {line}" for line in notes(frame)])
