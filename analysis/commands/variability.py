"""`python -m analysis variability`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import add_csv, add_reference, frames_of, require_directory, warn

SUMMARY = "how many results there are, and how far they lie apart"
DETAIL = """\
At the last step that all runs recorded: distinct results, effective number of outcomes, V_s, V_ermv, V_c and
ULP, of runs against each other and, apart from that, against a reference. Where no difference was seen, the
probability that can still be excluded stands beside it. With --by a summary by factor."""
EXAMPLES = """\
  python -m analysis variability runs/
  python -m analysis variability runs/ --by ordering --csv tables/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_reference(parser)
    parser.add_argument(
        "--by", choices=("ordering", "kernel", "ranks", "guarantee", "app"),
        help="one row for each level of this factor instead of one for each name",
    )  # fmt: skip
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """The table of variability."""
    from analysis.factors import by_factor
    from analysis.headline import headline
    from analysis.page.tables import factor_table, variability_tables
    from analysis.variability import pairs, variability
    from analysis.verdict import judge

    require_directory("--csv", options.csv)
    frames, against = frames_of(options)
    verdict = headline(judge(frames), frames)
    compared = pairs(frames, against)
    if options.by:
        frame = by_factor(frames, options.by, against, compared)
        name, tables = f"variability-by-{options.by}", [factor_table(frame, options.by)]
    else:
        frame = variability(frames, against, compared)
        name = "variability"
        tables = [(f"Variability: {cell}", table) for cell, table in variability_tables(frame)]
    warn(frames)
    shown: list[Shown] = [Bold(verdict), "", *tables]
    return Answer(frames, {name: frame, "pairs": compared}, shown, verdict=verdict)
