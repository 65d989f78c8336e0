"""The options that command lines of all rooms share: the version, a document for programs, how much is told."""

from __future__ import annotations

import argparse

from kernels import VERSION


def add_version(parser: argparse._ActionsContainer) -> None:
    """The option `--version`."""
    parser.add_argument("--version", action="version", version=VERSION, help="print the version, then stop")


def add_json(parser: argparse._ActionsContainer) -> None:
    """The option `--json`: one document on standard output, and nothing else there."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document (reference: JSON documents)"
    )


def add_loudness(parser: argparse._ActionsContainer, quiet: str, verbose: str | None = None) -> None:
    """The options `--quiet` and `--verbose`, of which one can be given; the texts say what each leaves or adds."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quiet", action="store_true", help=quiet)
    if verbose:
        group.add_argument("--verbose", action="store_true", help=verbose)
