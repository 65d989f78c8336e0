"""A parser whose mistakes are one line, and the numbers among its arguments."""

from __future__ import annotations

import argparse

from kernels.guarantees import ChoiceError
from kernels.ranges import Range


class Parser(argparse.ArgumentParser):
    """As argparse's, but a mistake is a ChoiceError, which commands print as one line with exit code 2."""

    def error(self, message: str):
        raise ChoiceError(message)


class Number(Range):
    """A range as the `type` of an argument; in its help `%(type)s`."""

    def __call__(self, text: str) -> float:
        try:
            return self.read(text)
        except ChoiceError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
