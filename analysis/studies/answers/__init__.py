"""Answers of networks to requests: bits and speed of the backends that evaluate them."""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "of `inference`: does an answer depend on the request, and what does a backend cost"
DETAIL = "Uses runs of `inference`, which record the number of different results of each image."
EXAMPLES = """\
  python -m analysis answers runs/
  python -m analysis answers runs/static --schedule schedule.svg"""
NEEDS = "results of images, as `inference` does"
RECORDED = "answers of a network to requests were recorded"
ANSWERS = (
    "The output of a network depends on the batch size or on the other requests in the batch: inference "
    "is not batch invariant."
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this study."""
    parser.add_argument(
        "--schedule", type=Path, metavar="FILE",
        help="draw the static schedule to FILE, .svg or .png: kernels over time, and the memory that they share",
    )  # fmt: skip
