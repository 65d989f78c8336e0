"""Numbers that a user gives, each with its range."""

from __future__ import annotations

from dataclasses import dataclass

from kernels.guarantees import ChoiceError

DIGITS = 400  # of one number; Python's own limit of 4,300 ends in an error of another kind
SHOWN = 60  # characters of a mistake that a message repeats
SEEDS = 2**63 - 1


@dataclass(frozen=True)
class Range:
    """Numbers from `least` to `most`, of the type of `least`."""

    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.least:g} to {self.most:g}" if self.real else f"{self.least} to {self.most}"

    @property
    def real(self) -> bool:
        """Whether they are floats."""
        return isinstance(self.least, float)

    def read(self, text: str) -> float:
        """The number that `text` is; raises ChoiceError, with the range, for what is none or outside."""
        try:
            value = (float if self.real else int)(text) if len(text) <= DIGITS else None
        except ValueError:
            value = None
        if value is None or not self.least <= value <= self.most:  # NaN is not
            raise ChoiceError(f"choose {self}, not {cut(repr(text))}")
        return value


def cut(text: str) -> str:
    """`text`, cut to a length that one reads."""
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 20]}... ({len(text)} characters)"
