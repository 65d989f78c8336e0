"""`python -m analysis`: the command line. Each command loads traces, calls functions of frames and prints."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.util import find_spec

from analysis.commands.choice import BAD_USAGE, EQUAL, Usage

PACKAGES = ("pandas", "pyarrow", "h5py", "jinja2", "matplotlib", "rich")
COMMANDS = (
    "report",
    "variability",
    "divergence",
    "growth",
    "components",
    "sums",
    "solves",
    "scaling",
    "export",
    "lint",
    "show",
)  # modules of analysis.commands

DESCRIPTION = """\
Reads the traces of runs and says whether their bits are equal, where they part, how far they drift and what
equality costs. A RUN is the directory of a run, a directory to search for runs, or a quoted pattern.
"""
EXIT_CODES = """\
exit codes:
  0  done; for divergence: equal
  1  failure
  2  usage, or traces that cannot be used
  3  divergence only: not equal
"""


def parser() -> argparse.ArgumentParser:
    """The command line of all commands."""
    top = argparse.ArgumentParser(
        prog="python -m analysis", description=DESCRIPTION, epilog=EXIT_CODES,
        formatter_class=_layout,
    )  # fmt: skip
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in COMMANDS:
        module = _module(name)
        summary = module.SUMMARY
        module.add_options(
            commands.add_parser(
                name, help=summary,
                description=f"{summary[0].upper()}{summary[1:]}.\n\n{module.DETAIL}".strip(),
                epilog=EXIT_CODES, formatter_class=_layout,
            )
        )  # fmt: skip
    return top


def _module(command: str):
    return import_module(f"analysis.commands.{command}")


def _layout(prog: str) -> argparse.HelpFormatter:
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=24, width=100)


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    options = parser().parse_args(argv)
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        print(
            f"analysis: not installed: {', '.join(missing)}; pip install {' '.join(missing)}",
            file=sys.stderr,
        )
        return BAD_USAGE
    from analysis.divergence import NothingInCommon
    from analysis.load.find import NoRuns

    try:
        return _module(options.command).run(options)
    except (Usage, NoRuns, NothingInCommon) as error:
        print(f"analysis: {error}", file=sys.stderr)
        return BAD_USAGE
    except BrokenPipeError:  # the reader of the output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EQUAL


if __name__ == "__main__":
    sys.exit(main())
