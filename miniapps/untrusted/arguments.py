"""A parser of command lines whose mistakes are one line."""

from __future__ import annotations

import argparse
import sys
from typing import NoReturn

from miniapps.untrusted.text import encodable, printable


class Parser(argparse.ArgumentParser):
    """As argparse's, but a mistake is one line, with exit code 2.

    No argument is repeated as it is: a pattern of the shell may have given the names of a received directory."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; {self.prog} --help says what there is\n")

    def _print_message(self, message, file=None):
        file = sys.stderr if file is None else file
        super()._print_message(encodable(printable(message, keep="\n"), file), file)
