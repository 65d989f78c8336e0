"""`python -m analysis nodes`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import add_csv, frames_for_csv

SUMMARY = "where the ranks were, what passed between nodes, and in which regions"
DETAIL = """\
Which ranks were on which node; the bytes that each node sent to each other, as far as the traces state them: messages
that were planned, and sums by a schedule of ours, exactly; of sums by the MPI library what must have crossed at least;
which collective or exchange they belong to; and the rate that was seen on a link."""
EXAMPLES = """\
  python -m analysis nodes runs/a
  python -m analysis nodes runs/ --csv tables/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What passed between the nodes of the runs."""
    from analysis.nodes.study import study, tables
    from analysis.nodes.words import all_tables, sentence
    from analysis.verdict import counted

    frames = frames_for_csv(options)
    results = study(frames)
    made = tables(results)
    shown: list[Shown] = []
    for of in results.runs:
        shown.append(Bold(f"{of.run}: {sentence(of, made['nodes'][made['nodes']['run'] == of.run])}"))
    if results.alone:
        shown.append(Bold(f"{counted(results.alone, 'run')} on one node: nothing crossed a network."))
    shown.append("")
    return Answer(
        frames, made, [*shown, *all_tables(results, made)], [f"Note: {note}." for note in results.notes]
    )
