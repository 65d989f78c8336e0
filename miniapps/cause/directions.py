"""Whether the difference of two runs stays where rounding changes, from launches that round upward and downward.

Take an operation whose exact result lies the fraction f of the way between two numbers. To nearest its error is -f or
1 - f; the middle of its results upward and downward has the error 1/2 - f. So to first order the middle of an upward
and a downward launch has errors as large as those of a launch to nearest, but other ones. A difference that rounding
makes is therefore another one in the middle, of either sign; a difference that a bug makes is the same. This test sees
bugs far below the reach of an upward launch, where the errors of n operations add up to n units: here they add up to
the root of n. If all operations have the same error, as in a sum of equal terms, nearest and middle differ by half a
unit in each, more than either error, so that such a sum is not taken for a bug.

For one record z = nearest - middle measures the size of the errors in each run. The product of the differences
(nearest in A - nearest in B) (middle in A - middle in B) shows whether the two agree. Records of one name are added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# The chance that rounding alone gives such a ratio in one of all names: above LIKELY the difference counts as rounding,
# below RARE as something else. Both are upper bounds (tests/miniapps/test_cause_directions.py).
LIKELY, RARE = 0.1, 1e-4
FIRST = 8  # the first records of a name are also added up alone, since later differences may have grown
MOST_FREEDOM = 20  # degrees of freedom, at most
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
            likely, rare = (SCALE * quantile(chance / (2 * len(every)), freedom) for chance in (LIKELY, RARE))
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


def quantile(chance: float, freedom: float) -> float:
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
