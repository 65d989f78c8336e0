"""`python -m analysis components`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, Usage, add_csv, export, require_directory, warn

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


def run(options: argparse.Namespace) -> int:
    """Print the variance components."""
    from analysis.components.study import components
    from analysis.components.tables import component_tables, notes, sentences
    from analysis.load.frames import load
    from analysis.page.terminal import printer

    require_directory("--csv", options.csv)
    frames = load(options.runs)
    warn(frames)
    if not frames.runs["complete"].any():
        raise Usage("no complete run among these, so nothing can be said of their variance; repeat one")
    frame = components(frames)
    say = printer()
    for line in sentences(frame):
        say(line, bold=True)
    for table in component_tables(frame):
        say(table)
    for line in notes(frame):
        say(f"Note: {line}")
    export(options, {"components": frame}, say)
    return EQUAL
