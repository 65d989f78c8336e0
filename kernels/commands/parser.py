"""An argument parser that reports mistakes in one line, and a type for numbers with a range."""

from __future__ import annotations

import argparse

from kernels.guarantees import ChoiceError
from kernels.ranges import Range


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises ChoiceError for a mistake; commands print it as one line, with exit code 2."""

    def error(self, message: str):
        raise ChoiceError(message)


class Number(Range):
    """A range as the `type` of an argument; `%(type)s` in its help prints the range."""

    def __call__(self, text: str) -> float:
        try:
            return self.read(text)
        except ChoiceError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
