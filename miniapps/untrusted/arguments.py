"""A parser of command lines that reports an error in one line."""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from typing import Any, NoReturn

from miniapps.untrusted.text import encodable, printable


class Parser(argparse.ArgumentParser):
    """argparse's parser, but an error is one line that suggests a similar option; the exit code is 2.

    Messages escape arguments, since a pattern of the shell may expand to names of a received directory. The help begins
    with `example`, if given."""

    def __init__(self, *arguments: Any, example: str = "", **named: Any):
        super().__init__(*arguments, **named)
        self.example = example

    def format_help(self) -> str:
        """The help: the usage, the example, then the rest."""
        usage, _, rest = super().format_help().partition("\n\n")
        return f"{usage}\n\n" + (f"example:\n  {self.example}\n\n" if self.example else "") + rest

    def error(self, message: str) -> NoReturn:
        unknown = "unrecognized" in message
        wrong = next((word for word in message.split() if word.startswith("-")), "").partition("=")[0]
        names = [name for action in self._actions for name in action.option_strings]
        close = get_close_matches(wrong, names, 1) if unknown else []
        what = f"did you mean {close[0]}?" if close else f"{self.prog} --help shows the usage"
        self.exit(2, f"{self.prog}: {message}; {what}\n")

    def _print_message(self, message, file=None):
        file = sys.stderr if file is None else file
        super()._print_message(encodable(printable(message, keep="\n"), file), file)
