"""`python -m analysis learning`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, frames_for_csv, without

SUMMARY = (
    "runs that learn: accuracy over time, prices of wires, decisions, variance of accuracy, use of a mesh"
)
DETAIL = """\
Runs that recorded accuracy and loss are used, and runs over a mesh, which recorded their utilisation. Wires are
compared over the seeds that both have, at one learning rate and each at its best."""
EXAMPLES = """\
  python -m analysis learning runs/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What is known of the trainings."""
    from analysis.page.words import tables_in_words
    from analysis.training import mesh
    from analysis.training.frames import trainings
    from analysis.training.tables import all_tables, exported, sentences, study, verdicts

    frames = frames_for_csv(options)
    known, used = trainings(frames), mesh.used(frames)
    if known.runs.empty and used.runs.empty:
        raise without(frames, "accuracy and loss by step, or the utilisation of a mesh, as `training` does")
    shown: list[Part] = list(map(Bold, mesh.sentences(used)))
    notes: list[str] = []
    written = {}
    if len(known.runs):
        results = study(known)
        shown += map(Bold, filter(None, [*sentences(results), verdicts(results)]))
        shown += tables_in_words(all_tables(results), known.words)
        notes += [f"Note: {note}." for note in results.notes]
        written = exported(results)
    written["utilisation"] = used.runs.drop(columns="stages")
    return Answer(frames, written, [*shown, *mesh.tables(used)], notes)
