"""`python -m analysis sums`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, Usage, add_csv, export, of_app

SUMMARY = "the sums of `reductions`: how far they vary, and what each way of adding up costs"
DETAIL = """\
Only runs of `reductions` are used."""
EXAMPLES = """\
  python -m analysis sums runs/paper
  python -m analysis sums runs/paper --reference truth --csv tables/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument(
        "--reference", metavar="VARIANT[@BACKEND]",
        help="what V_s is against: a variant, or truth (sptr, else the variant of the strongest guarantee)",
    )  # fmt: skip
    add_csv(parser)


def run(options: argparse.Namespace) -> int:
    """Print what is known of the sums of `reductions`."""
    from analysis import terminal
    from analysis.sums.frames import APP, NoReference
    from analysis.sums.frames import sums as frames_of
    from analysis.sums.tables import all_tables, exported, study

    found = frames_of(of_app(options, APP))
    if found.samples.empty:
        raise Usage(f"the runs of {APP} recorded no sums; look at them with `show`, or repeat them")
    try:
        made = study(found, options.reference)
    except NoReference as error:
        raise Usage(str(error)) from error
    say = terminal.printer()
    for title, table in all_tables(made):
        say(terminal.table(title, table.columns, table.rows, table.numbers))
    for note in made.notes:
        say(f"Note: {note}.")
    export(options, exported(made), say)
    return EQUAL
