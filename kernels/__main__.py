"""`python -m kernels`: the instruments of the kernels, by name."""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from kernels import VERSION
from kernels.commands.entry import command_line
from kernels.commands.options import add_version

COMMANDS = {
    "allreduce": "orderings of all-reduces: lists, trees, prices, pictures, measured properties",
    "sums": "ways of adding numbers: lists, trees found from values, worst orders, errors and times",
    "contract": "products of matrices and convolutions: lists, certificates of what changes their bits",
}  # modules of kernels.commands


def text(prog: str) -> str:
    """The help text: usage, an example, and each command with its summary."""
    lines = [f"usage: {prog} NAME [COMMAND] [options]", "", "example:", f"  {prog} sums tree numpy -n 12", ""]
    lines += [f"  {name:9}  {summary}" for name, summary in COMMANDS.items()]
    return "\n".join([*lines, "", f"{prog} NAME --help   the commands of each", f"{prog} --version"])


def parser_of(words: Sequence[str], prog: str) -> tuple[argparse.ArgumentParser, int]:
    """The parser of the line `PROG WORDS ...`, and the number of leading words that it does not parse."""
    name, command = [*words, "", ""][:2]
    if name in COMMANDS:
        of = import_module(f"kernels.commands.{name}").parser
        return of(command, f"{prog} {name}") if name == "allreduce" else of(f"{prog} {name}"), 1
    choosing = argparse.ArgumentParser(prog=prog)
    add_version(choosing)
    choosing.add_argument("command", choices=list(COMMANDS))
    return choosing, 0


@command_line
def main(argv: list[str] | None = None, prog: str = "python -m kernels") -> int:
    """Runs the command that `argv` names; returns the exit code."""
    name, *rest = (sys.argv[1:] if argv is None else argv) or ["--help"]
    if name in ("-h", "--help"):
        print(text(prog))
        return 0
    if name == "--version":
        print(VERSION)
        return 0
    if name not in COMMANDS:
        print(f"{prog}: no {name!r} here: choose {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return import_module(f"kernels.commands.{name}").main(rest, f"{prog} {name}")


if __name__ == "__main__":
    sys.exit(main())
