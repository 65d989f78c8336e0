"""`python -m analysis scaling`."""

from __future__ import annotations

import argparse

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, frames_for_csv
from analysis.errors import Usage

SUMMARY = "speedup, efficiencies, waiting and the critical path, against the number of ranks"
DETAIL = """\
Speedups and efficiencies are of all complete runs with times, with fits (Amdahl, USL and others) chosen by AICc and
refused below four rank counts. The trace of the median run on each rank count is replayed for the POP
efficiencies, the waiting in each collective, the ranks that come late, and the critical path."""
EXAMPLES = """\
  python -m analysis scaling runs/
  python -m analysis scaling runs/coupled-p* --csv tables/"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    add_csv(parser)


def run(options: argparse.Namespace) -> Answer:
    """How the runs scale."""
    from analysis.scaling.study import study
    from analysis.scaling.tables import all_tables, base_notes, exported

    frames = frames_for_csv(options)
    results = study(frames)
    if results.points.empty:
        why = "; ".join(results.notes) or "there is none"
        raise Usage(f"no complete run with times ({why}); repeat one to its end without --trace off")
    alone = "No problem was timed on several rank counts by one method: no speedup is known."
    shown: list[Part] = [*([Bold(alone)] if results.speedups.empty else []), *all_tables(results)]
    notes = [f"Note: {note}." for note in [*base_notes(results), *results.notes]]
    return Answer(frames, exported(results), shown, notes)
