"""Growth of the difference between runs with the step."""

from __future__ import annotations

import argparse
import math

SUMMARY = "how a difference grows with the step: rate, saturation, when it crosses a tolerance"
DETAIL = """\
Compares the runs of one problem, method and rank count with the first of them. A rate needs four runs, its interval
seven. Leaves out runs of `reductions`, since their steps are samples: see `sums`."""
EXAMPLES = """\
  python -m analysis growth runs/
  python -m analysis growth runs/ --tolerance 1e-6"""
NEEDS = "steps that each continue the one before (for runs that compare variants, see `sums`)"
TOLERANCE = 1e-8  # relative: half of the digits of float64 are lost (its epsilon is 2.2e-16)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this study."""
    parser.add_argument(
        "--tolerance", type=_tolerance, default=TOLERANCE, metavar="X",
        help=f"relative difference whose step is predicted and observed ({TOLERANCE:g}: half of the digits of float64)",
    )  # fmt: skip


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: must be a number above 0, such as 1e-8")
    return value
