"""Draws in which choices take turns, so that few draws have each recipe and each guarantee.

    in_turn("gpt", {"recipe": ("dp", "tp"), "guarantee": ("none", "layout")}, 4, rng, draw)

calls `draw(recipe, guarantee)` once for each pair here. The values of a choice occur equally often, or one of them once
more; earlier choices go first where the values of two do not fit each other.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from kernels.guarantees import ChoiceError
from miniapps.errors import UsageError
from miniapps.partition.cuts.axes import AxisError

TRIES = 200  # draws of the same values before these count as impossible


@dataclass(frozen=True)
class Draws:
    """What was drawn; `missing`: {choice: its values without a draw}; `reasons`: {values, one of each choice: why no
    draw of them is possible}; `combinations`: how many there are."""

    found: list[Any]
    missing: dict[str, list[str]]
    reasons: dict[tuple[str, ...], str]
    combinations: int

    def sentence(self) -> str:
        """The sentence about missing values, "" without any."""
        if not self.missing:
            return ""
        named = "; ".join(f"{choice} {', '.join(values)}" for choice, values in self.missing.items())
        gone = {value for values in self.missing.values() for value in values}
        why = next((reason for values, reason in self.reasons.items() if gone.intersection(values)), "")
        because = f", for example since {why}" if why else f"; {self.combinations} draws have all"
        return f"the {len(self.found)} drawn plans have none of {named}{because}"


def in_turn(
    name: str, choices: Mapping[str, Sequence[str]], count: int, rng: np.random.Generator, draw: Callable[..., Any]
) -> Draws:  # fmt: skip
    """`count` results of `draw` with a value of each of `choices`. Values with which `draw` raises UsageError,
    ChoiceError or AxisError TRIES times are left out. Raises UsageError if all are; `name`: of the model."""
    every = list(product(*(dict.fromkeys(values) for values in choices.values())))
    left = [every[k] for k in rng.permutation(len(every))]
    used: Counter = Counter()
    found: list[Any] = []
    reasons = {}
    while left and len(found) < count:
        one = min(left, key=lambda values: (*(used[each] for each in enumerate(values)), used[values]))
        drawn, reason = _drawn(draw, one)
        if reason:
            left.remove(one)
            reasons[one] = reason
            continue
        found.append(drawn)
        used.update([*enumerate(one), one])
    if not found:
        raise UsageError(
            f"--plan {name}: none of {TRIES * len(every)} draws is possible, since {next(iter(reasons.values()))}"
        )
    missing = {
        choice: lacking
        for k, (choice, values) in enumerate(choices.items())
        if (lacking := [value for value in dict.fromkeys(values) if not used[k, value]])
    }
    return Draws(found, missing, reasons, len(every))


def _drawn(draw: Callable[..., Any], values: Sequence[str]) -> tuple[Any, str]:
    """(a draw of these values, "") or (None, why there is none: the reasons that differ in more than numbers)."""
    reasons: dict[str, str] = {}
    for _ in range(TRIES):
        try:
            return draw(*values), ""
        except (UsageError, ChoiceError, AxisError) as error:
            reasons.setdefault(re.sub(r"\d+", "", str(error)), str(error))
    return None, ", or since ".join(reasons.values())
