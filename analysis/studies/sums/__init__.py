"""Sums, of runs that compare variants: variability, price, distribution, growth with N and worst orders."""

from __future__ import annotations

import argparse

SUMMARY = "of `reductions`: how far sums vary, and what each way of adding costs"
DETAIL = """\
Only runs that compare variants are used: those of `reductions`."""
EXAMPLES = """\
  python -m analysis sums runs/paper
  python -m analysis sums runs/paper --reference truth --csv tables/"""
NEEDS = "sums by variant, as `reductions` does"
RECORDED = "ways of adding up were compared"
ANSWERS = (
    "The sum of floating-point numbers depends on the order of summation: accuracy and cost of pairwise, "
    "compensated, parallel and exact reductions."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this study."""
    parser.add_argument(
        "--reference", metavar="VARIANT[@BACKEND]",
        help="what V_s is against: a variant, or truth (sptr, else the variant of the strongest guarantee)",
    )  # fmt: skip
