"""The options that command lines of all packages share: --version, --json, --quiet and --verbose."""

from __future__ import annotations

import argparse

from kernels import VERSION


def add_version(parser: argparse._ActionsContainer) -> None:
    """Adds the option `--version`."""
    parser.add_argument("--version", action="version", version=VERSION, help="print the version, then stop")


def add_json(parser: argparse._ActionsContainer) -> None:
    """Adds the option `--json`: standard output is one JSON document."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document (reference: JSON documents)"
    )


def add_loudness(parser: argparse._ActionsContainer, quiet: str, verbose: str | None = None) -> None:
    """Adds the exclusive options `--quiet` and `--verbose`; the texts say what each leaves out or adds."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--quiet", action="store_true", help=quiet)
    if verbose:
        group.add_argument("--verbose", action="store_true", help=verbose)
