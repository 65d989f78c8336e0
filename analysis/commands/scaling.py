"""`python -m analysis scaling`."""

from __future__ import annotations

import argparse

from analysis.commands.choice import EQUAL, Usage, add_csv, export, frames_for_csv

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


def run(options: argparse.Namespace) -> int:
    """Print how the runs scale."""
    from analysis.page.terminal import printer
    from analysis.scaling.study import study
    from analysis.scaling.tables import all_tables, base_notes, exported

    frames = frames_for_csv(options)
    results = study(frames)
    if results.points.empty:
        why = "; ".join(results.notes) or "there is none"
        raise Usage(f"no complete run with times ({why}); repeat one to its end without --trace off")
    say = printer()
    if results.speedups.empty:
        say("No problem was timed on several rank counts by one method: no speedup is known.")
    for table in all_tables(results):
        say(table)
    for note in [*base_notes(results), *results.notes]:
        say(f"Note: {note}.")
    export(options, exported(results), say)
    return EQUAL
