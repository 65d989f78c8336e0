"""Test whether the difference of two runs stays when rounding changes, by launches that round upward and downward.

Let the exact result of an operation lie the fraction f of the way between two neighbouring numbers. Rounded to nearest,
its error is -f or 1 - f; the middle of its results upward and downward has the error 1/2 - f. So, to first order, the
middle of an upward and a downward launch has errors as large as a launch to nearest, but different ones. A difference
by rounding therefore changes in the middle, with either sign; a difference by a bug stays. This test sees bugs far
below the reach of an upward launch: there the errors of n operations add up to n units, here to the root of n. If all
operations have the same error, as in a sum of equal terms, nearest and middle differ by half a unit in each operation.
That is more than either error, so the test does not mistake such a sum for a bug.

For one record z = nearest - middle measures the size of the errors in each run. The product of the differences
(nearest in A - nearest in B) (middle in A - middle in B) shows whether the two agree. Records of one name are added up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

# The probability that rounding alone gives such a ratio for one of all names: above LIKELY the difference counts as
# rounding, below RARE as something else. Both are upper bounds (tests/miniapps/test_cause_directions.py).
LIKELY, RARE = 0.1, 1e-4
FIRST = 8  # the first records of a name are also added up alone, since later differences may have grown
MOST_FREEDOM = 20  # degrees of freedom, at most
# If errors have variance 1, a difference of two runs (nearest or middle) has variance 2, the two differences correlate
# by -1/2, and each z has variance 3. The product of the differences is ((their sum)^2 - (their difference)^2) / 4, at
# most a quarter of a square of variance 2. So the ratio is at most SCALE times a variable of Student's distribution.
SCALE = 1 / math.sqrt(12)


@dataclass(frozen=True)
class Launched:
    """The recorded numbers of one run, (n, 4) each: rounded to nearest, upward and downward."""

    nearest: np.ndarray
    up: np.ndarray
    down: np.ndarray

    @property
    def middle(self) -> np.ndarray:
        """(n, 4): the middle of upward and downward."""
        return self.down + (self.up - self.down) / 2


@dataclass(frozen=True)
class Stay:
    """The part of the difference that stays in the records of one `name`.

    `ratio`: this part, divided by the change by rounding. `likely`, `rare`: ratios that rounding alone exceeds in fewer
    than one case of ten and of ten thousand. `row`: the first of these records; `error`: the change by rounding there.
    """

    name: int
    row: int
    error: float
    ratio: float
    likely: float
    rare: float

    @property
    def stays(self) -> bool:
        """Whether rounding alone exceeds `ratio` in fewer than one case of ten thousand."""
        return self.ratio > self.rare

    @property
    def moves(self) -> bool:
        """Whether `ratio` is usual for rounding alone."""
        return self.ratio <= self.likely


def judge(
    a: Launched, b: Launched, names: np.ndarray, step: np.ndarray, scale: np.ndarray, least: np.ndarray
) -> Stay | None:
    """The name whose difference is least probable for rounding alone; None if no record can be judged.

    names, step: (n,) of each record. scale: (n,) the distance by which disturbed launches move it; its inverse is the
    weight. least: (n,) the smallest error that is known, since the library adds to nearest in all launches.
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
    """The number of independent errors in `z`, (n, 4): 1 if all records repeat one error."""
    squares = float((z**2).sum())
    if squares == 0:
        return 0.0
    together = float((z.sum(axis=0) ** 2).sum())
    return float(np.clip(len(z) * squares / max(squares, together), 1, len(z)))


def quantile(chance: float, freedom: float) -> float:
    """The t that |T| exceeds with probability `chance`, for T of Student's distribution.

    The degrees of freedom are rounded down to an even number, at least 2 (Abramowitz and Stegun, 26.7.4)."""
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
