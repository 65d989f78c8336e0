"""`python -m analysis variability`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, add_csv, add_reference, export, frames_of, require_directory, warn

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


def run(options: argparse.Namespace) -> int:
    """Print the table of variability."""
    from analysis.factors import by_factor
    from analysis.headline import headline
    from analysis.page.tables import factor_table, variability_tables
    from analysis.page.terminal import printer
    from analysis.variability import pairs, variability
    from analysis.verdict import judge

    require_directory("--csv", options.csv)
    frames, against = frames_of(options)
    say = printer()
    say(str(headline(judge(frames), frames)), bold=True)
    say()
    compared = pairs(frames, against)
    if options.by:
        summary = by_factor(frames, options.by, against, compared)
        say(factor_table(summary, options.by))
        export(options, {f"variability-by-{options.by}": summary, "pairs": compared}, say)
    else:
        frame = variability(frames, against, compared)
        for cell, table in variability_tables(frame):
            say((f"Variability: {cell}", table))
        export(options, {"variability": frame, "pairs": compared}, say)
    warn(frames)
    return EQUAL
