"""Ranges of numbers that a user may give."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.guarantees import ChoiceError

DIGITS = 400  # of one number, at most; beyond 4,300 Python raises an error of another kind
SHOWN = 60  # characters of a wrong input that a message repeats
SEEDS = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """The numbers from `least` to `most`, both included, of the type of `least`."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}" if self.real else f"{self.least} to {self.most}"

    @property
    def real(self) -> bool:
        """Whether they are floats."""
        return isinstance(self.least, float)

    def read(self, text: str) -> float:
        """Converts `text` to a number; raises ChoiceError, with the range, for other text and numbers outside."""
        try:
            value = (float if self.real else int)(text) if len(text) <= DIGITS else None
        except ValueError:
            value = None
        if value is None or not self.least <= value <= self.most:  # NaN is not
            raise ChoiceError(f"choose {self}, not {cut(repr(text))}")
        return value


def cut(text: str) -> str:
    """`text`, cut to SHOWN characters and its length if it is longer."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]}... ({len(text)} characters)"
