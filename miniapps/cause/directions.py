"""Does the difference of two runs stay where rounding changes? Both are launched rounding upward, and downward.

To first order the middle of an upward and a downward launch errs as a launch to nearest does, by as much and in other
places: an operation whose exact result lies the share f between two numbers errs by -f or 1 - f where it rounds to
nearest, and by 1/2 - f in the middle. So a difference that rounding makes is another one in the middle, of either sign.
What a bug makes is the same. This sees bugs far below what an upward launch reaches, since there the errors of n
operations add up to n, and here to their root. Where all operations err alike, as in a sum of equal terms, nearest and
middle differ by half a unit each, which is more than they err, so that such a sum is not taken for a bug.

Of one record z = nearest - middle tells in each run how large the errors are, and the product of the differences
(nearest in A - nearest in B) (middle in A - middle in B) whether these agree. Records of one name are added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# The chance that rounding alone gives such a ratio in one of all names: up to LIKELY it is taken for rounding, from
# RARE on for something else. Both are upper bounds (tests/miniapps/test_cause_directions.py).
LIKELY, RARE = 0.1, 1e-4
FIRST = 8  # records of a name that are also added up alone: what comes later may have grown
MOST_FREEDOM = 20  # degrees of freedom that are believed
# Of errors with variance 1 a difference of two runs, nearest or middle, has variance 2, both correlate by -1/2, and
# each z has variance 3. So the product of the differences is ((their sum)^2 - (their difference)^2) / 4, at most a
# quarter of a square of variance 2, and the ratio at most this times a variable of Student's distribution.
SCALE = 1 / math.sqrt(12)


@dataclass(frozen=True)
class Launched:
    """The numbers of one run's records, (n, 4) each: to nearest, upward, downward."""

    nearest: np.ndarray
    up: np.ndarray
    down: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """(n, 4): between upward and downward."""
        return self.down + (self.up - self.down) / 2


@dataclass(frozen=True)
class Stay:
    """How far the difference stays in the records of one `name`: `ratio` of what stays to what rounding changed;
    `likely` and `rare`: ratios that rounding alone exceeds in fewer than one case of ten and of ten thousand.
    `row`: the first of these records; `error`: how much rounding changed there."""

    name: int
    row: int
    error: float
    ratio: float
    likely: float
    rare: float

    @property
    def stays(self) -> bool:
        """Whether rounding would hardly ever leave so much."""
        return self.ratio > self.rare

    @property
    def moves(self) -> bool:
        """Whether rounding leaves so much, often enough."""
        return self.ratio <= self.likely


def judge(
    a: Launched, b: Launched, names: np.ndarray, step: np.ndarray, scale: np.ndarray, least: np.ndarray
) -> Stay | None:
    """The name whose records stay most, by the chance that rounding leaves so much; None where nothing tells.

    names, step: (n,) of each record. scale: (n,) how far disturbed launches move it, as a weight. least: (n,) below
    which an error is not known, since the library adds to nearest in all launches.
    """
    nearest, middle = a.nearest - b.nearest, a.middle - b.middle
    z_a, z_b = a.nearest - a.middle, b.nearest - b.middle
    known = (nearest != 0).any(axis=1) & (scale > 0) & ((z_a != 0) | (z_b != 0)).any(axis=1)
    for numbers in (nearest, middle, z_a, z_b):
        known &= np.isfinite(numbers).all(axis=1)
    every = np.unique(names[known])
    found = []
    for name in every:
        rows = np.flatnonzero(known & (names == name))
        rows = rows[np.argsort(step[rows], kind="stable")]
        for some in {len(rows), min(FIRST, len(rows))}:
            few = rows[:some]
            weight = 1 / scale[few, None]
            stays = float(((nearest[few] * weight) * (middle[few] * weight)).sum())
            noise = float(((z_a[few] * weight) ** 2 + (z_b[few] * weight) ** 2).sum())
            noise += float(((least[few, None] * weight) ** 2).sum())
            ratio = math.sqrt(max(stays, 0.0) / noise)
            freedom = _freedom(z_a[few] * weight) + _freedom(z_b[few] * weight)
            likely, rare = (
                SCALE * _quantile(chance / (2 * len(every)), freedom) for chance in (LIKELY, RARE)
            )
            error = math.sqrt(noise / some) * float(scale[few[0]])
            found.append(Stay(int(name), int(few[0]), error, ratio, likely, rare))
    return max(found, key=lambda stay: stay.ratio / stay.rare, default=None)


def _freedom(z: np.ndarray) -> float:
    """How many independent numbers `z`, (n, 4), is worth: one where all records repeat one error."""
    squares = float((z**2).sum())
    if squares == 0:
        return 0.0
    together = float((z.sum(axis=0) ** 2).sum())
    return float(np.clip(len(z) * squares / max(squares, together), 1, len(z)))


def _quantile(chance: float, freedom: float) -> float:
    """The t that |T| exceeds with this chance, T of Student's distribution with so many degrees of freedom, rounded
    down to an even number of at least 2 (Abramowitz and Stegun, 26.7.4)."""
    even = int(np.clip(freedom // 2 * 2, 2, MOST_FREEDOM))

    def beyond(t: float) -> float:
        angle = math.atan(t / math.sqrt(even))
        term, total = 1.0, 1.0
        for k in range(1, even // 2):
            term *= (2 * k - 1) / (2 * k) * math.cos(angle) ** 2
            total += term
        return 1 - math.sin(angle) * total

    low, high = 0.0, 2.0 / math.sqrt(chance)
    for _ in range(100):
        low, high = ((low + high) / 2, high) if beyond((low + high) / 2) > chance else (low, (low + high) / 2)
    return high
