"""The command `fpna`: every command of the suite by one name. It does not import from the current directory, so that
files there cannot hide ours.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches

from kernels.commands.entry import command_line
from miniapps import require_own


def text() -> str:
    """The list of commands, as plain text."""
    from fpna import commands

    lines = ["usage: fpna COMMAND [options]"]
    for heading, listed in commands.summaries().items():
        lines += ["", heading, *(f"  {name:12} {summary}" for name, summary in listed.items())]
    return "\n".join([*lines, "", "fpna COMMAND --help   options and examples of each", "fpna --version"])


@command_line
def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    require_own("analysis", "jobs")
    from fpna import commands  # which imports these

    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could follow
        from fpna.completion import complete

        complete()
    if name in ("-h", "--help"):
        print(text())
        return 0
    if name == "--version":
        from kernels import VERSION

        print(VERSION)
        return 0
    run = commands.runs(name)
    if run is None:
        close = get_close_matches(name, commands.names(), 1)
        hint = f"; did you mean {close[0]}?" if close else "; fpna --help lists them"
        print(f"fpna: no command {name!r}{hint}", file=sys.stderr)
        return 2
    return run(rest)
