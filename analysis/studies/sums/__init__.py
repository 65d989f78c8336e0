"""Sums of runs that compare variants: variability, price, distribution, growth with N and worst orders."""

from __future__ import annotations

import argparse

SUMMARY = "of `reductions`: how much sums vary, and the price of each way of adding"
DETAIL = """\
Uses runs that compare variants: those of `reductions`."""
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
        help="reference of V_s: a variant, or truth (default: sptr, else the variant with the strongest guarantee)",
    )  # fmt: skip
