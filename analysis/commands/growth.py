"""`python -m analysis growth`."""

from __future__ import annotations

import argparse
import math

from analysis.commands.answer import Answer, Bold, Part
from analysis.commands.choice import add_csv, frames_for_csv
from analysis.errors import Usage

SUMMARY = "how the difference between runs grows with the step: rate, saturation, when a tolerance is crossed"
DETAIL = """\
The runs of one problem, method and rank count are compared with the first of them. A rate needs four of them, its
interval seven. Runs of `reductions` are left out, since their steps are samples: see `sums`."""
EXAMPLES = """\
  python -m analysis growth runs/
  python -m analysis growth runs/ --tolerance 1e-6"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("runs", nargs="+", metavar="RUN")
    parser.add_argument(
        "--tolerance", type=_tolerance, default=1e-8, metavar="X",
        help="relative difference whose step is predicted and observed (1e-8: half of the digits of float64)",
    )  # fmt: skip
    add_csv(parser)


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0, such as 1e-8")
    return value


def run(options: argparse.Namespace) -> Answer:
    """The laws of growth."""
    from analysis.growth.runs import alone, cell_growths, equal_cells, laws
    from analysis.growth.table import equal_lines, growth_tables
    from analysis.runs import samples

    frames = frames_for_csv(options)
    if samples(frames.runs).all():
        raise Usage(
            "no run with steps that follow from each other among these; for those that compare variants see `sums`"
        )
    differences = cell_growths(frames)
    fitted = laws(differences, options.tolerance)
    notes = [
        f"{cell}: fewer than two complete runs, nothing to compare; run with --repeats 7 for a rate with interval."
        for cell in alone(frames)
    ]
    shown: list[Part] = [
        *growth_tables(fitted, options.tolerance),
        *map(Bold, equal_lines(equal_cells(differences))),
    ]
    return Answer(frames, {"laws": fitted, "growth": differences}, shown, notes)
