"""`python -m analysis inference`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import add_csv, frames_for_csv, without

SUMMARY = "networks that answer requests: does a result depend on the request, and what does a backend cost"
DETAIL = "Only runs that recorded how many results each image got are used: those of `inference`."
EXAMPLES = """\
  python -m analysis inference runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What is known of the answers."""
    from analysis.inference.frames import answers
    from analysis.inference.tables import answer_tables, sentences
    from analysis.page.words import tables_in_words

    frames = frames_for_csv(options)
    known = answers(frames)
    if known.runs.empty:
        raise without(frames, "results of images, as `inference` does")
    shown: list[Shown] = [*map(Bold, sentences(known)), *tables_in_words(answer_tables(known), known.words)]
    return Answer(frames, {"answers": known.runs}, shown)
