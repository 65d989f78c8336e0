"""`python -m analysis training`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import add_csv, frames_for_csv, without

SUMMARY = "runs that learn: accuracy over time, prices of wires, decisions, where the variance of accuracy is"
DETAIL = """\
Only runs that recorded accuracy and loss are used: those of `training`. Wires are compared over the seeds that both
have, at one learning rate and each at its best."""
EXAMPLES = """\
  python -m analysis training runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What is known of the trainings."""
    from analysis.page.words import tables_in_words
    from analysis.training.frames import trainings
    from analysis.training.tables import all_tables, exported, sentences, study, verdicts

    frames = frames_for_csv(options)
    known = trainings(frames)
    if known.runs.empty:
        raise without(frames, "accuracy and loss by step, as `training` does")
    results = study(known)
    shown: list[Shown] = [
        *map(Bold, filter(None, [*sentences(results), verdicts(results)])),
        *tables_in_words(all_tables(results), known.words),
    ]
    return Answer(frames, exported(results), shown, [f"Note: {note}." for note in results.notes])
