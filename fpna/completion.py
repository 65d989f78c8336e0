"""What a shell completes of the command `fpna`: `eval "$(register-python-argcomplete fpna)"`.

The shell starts the command with `_ARGCOMPLETE` set and the line so far in COMP_LINE; argcomplete answers from the
parser of the command in it, the only one that is made.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from fpna.command import ANALYSIS, APPLICATIONS, OTHERS


def complete() -> None:
    """Answer the shell, and end the process."""
    try:
        import argcomplete
    except ImportError:  # the shell then has nothing to offer
        sys.exit(1)
    words = argcomplete.split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3]
    parser, before = parser_of(words[1:])
    os.environ["_ARGCOMPLETE"] = str(1 + before)  # from which word on the line is the parser's
    argcomplete.autocomplete(parser)


def parser_of(words: Sequence[str]) -> tuple[argparse.ArgumentParser, int]:
    """The parser of the line `fpna WORDS ...`, and how many of the words stand before what it parses."""
    name = words[0] if words else ""
    if name in APPLICATIONS:
        from miniapps.runner.commandline import parser as of_application

        return of_application(import_module(f"miniapps.{name}").APP), 1
    if name in ANALYSIS:
        return import_module("analysis.__main__").parser("fpna"), 0
    if name == "jobs":
        return import_module("jobs.__main__").parser("fpna jobs"), 1
    if name == "kernels":
        return _kernels(words[1:])
    if name == "run":
        return import_module("miniapps.programs.observing").parser("fpna run"), 1
    if name == "partition":
        return import_module("miniapps.partition.commands").parser("fpna partition"), 1
    if name == "embeddings":
        return import_module("miniapps.embeddings.__main__").parser("fpna embeddings"), 1
    if name in ("cause", "cost", "verify"):
        return import_module(f"miniapps.{name}.command").parser(f"fpna {name}"), 1
    if name in OTHERS:
        return import_module(f"miniapps.{name}").parser(f"fpna {name}"), 1
    return _choosing("fpna", (*APPLICATIONS, *ANALYSIS, *OTHERS)), 0


def _kernels(words: Sequence[str]) -> tuple[argparse.ArgumentParser, int]:
    from kernels.__main__ import COMMANDS

    name, command = [*words, "", ""][:2]
    if name == "allreduce":
        return import_module("kernels.commands.allreduce").parser(command, "fpna kernels allreduce"), 2
    if name == "sums":
        return import_module("kernels.commands.sums").parser("fpna kernels sums"), 2
    if name == "contract":
        return import_module("kernels.commands.contract").parser("fpna kernels contract"), 2
    return _choosing("fpna kernels", COMMANDS), 1


def _choosing(prog: str, names: Sequence[str] | dict[str, str]) -> argparse.ArgumentParser:
    from kernels.commands.options import add_version

    parser = argparse.ArgumentParser(prog=prog)
    add_version(parser)
    parser.add_argument("command", choices=list(names))
    return parser
