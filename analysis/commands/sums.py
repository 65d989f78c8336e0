"""`python -m analysis sums`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer
from analysis.commands.choice import add_csv, frames_for_csv, without
from analysis.errors import Usage

SUMMARY = "the sums of `reductions`: how far they vary, and what each way of adding up costs"
DETAIL = """\
Only runs that compare variants are used: those of `reductions`."""
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


def run(options: argparse.Namespace) -> Answer:
    """What is known of the sums."""
    from analysis.page.words import tables_in_words
    from analysis.sums.frames import NoReference
    from analysis.sums.frames import sums as frames_of
    from analysis.sums.tables import all_tables, exported, study

    frames = frames_for_csv(options)
    sums = frames_of(frames)
    if sums.samples.empty:
        raise without(frames, "sums by variant, as `reductions` does")
    try:
        results = study(sums, options.reference)
    except NoReference as error:
        raise Usage(str(error)) from error
    notes = [f"Note: {note}." for note in results.notes]
    return Answer(
        frames, exported(results), tables_in_words(all_tables(results), results.recorded.words), notes
    )
