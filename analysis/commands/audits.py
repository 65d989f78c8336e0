"""`python -m analysis audits`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Shown
from analysis.commands.choice import add_csv, frames_for_csv, without

SUMMARY = (
    "audits of operations: what bits depend on, documentation against what was seen, certificates compared"
)
DETAIL = """\
Only runs that wrote a certificate are used: those of `operations`. Several are compared with the first: versions,
machines, bits by one thread, and which changes alter which cases."""
EXAMPLES = """\
  python -m analysis audits runs/audit
  python -m analysis audits runs/of-torch-2.13 runs/of-torch-2.14"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """What is known of the audits."""
    from analysis.commands.choice import tell_problems
    from analysis.operations.frames import audits
    from analysis.operations.tables import all_tables, exported, sentences, study

    frames = frames_for_csv(options)
    known = audits(frames)
    tell_problems(known.problems)
    if not known.certificates:
        raise without(frames, "a certificate, as `operations` does")
    results = study(known)
    shown: list[Shown] = [*map(Bold, sentences(results)), *all_tables(results)]
    return Answer(frames, exported(results), shown, [f"Note: {note}." for note in results.notes])
