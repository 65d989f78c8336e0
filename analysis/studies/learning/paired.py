"""Compares the accuracies of two lines by seeds: mean difference, interval, and the detectable difference."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.power import least_difference
from analysis.statistics import CONFIDENCE

FEWEST = 3  # pairs for a verdict: two seeds have one degree of freedom
DIFFERS, UNSEEN, TOO_FEW = "differs", "no difference seen", "too few seeds"


@dataclass(frozen=True)
class Difference:
    """Differences a - b over `pairs` common seeds: `mean` with its 95 % interval `low` to `high`, standard deviation
    `sd`, and `least`, the difference detectable with power 80 % (NaN for too few pairs)."""

    pairs: int
    mean: float
    low: float
    high: float
    sd: float
    least: float

    @property
    def verdict(self) -> str:
        """DIFFERS, UNSEEN or TOO_FEW."""
        if self.pairs < FEWEST:
            return TOO_FEW
        return UNSEEN if self.low <= 0 <= self.high else DIFFERS


def difference(a: pd.Series, b: pd.Series) -> Difference:
    """The paired t test of `a` - `b`, series by seeds, over seeds with a finite number in both (Student 1908).

    It assumes normal differences. If all are equal, the interval is that number, and `least` is NaN.
    """
    paired = (a - b).to_numpy(np.float64)  # aligned by seeds
    paired = paired[np.isfinite(paired)]
    n = len(paired)
    if not n:
        return Difference(0, *[np.nan] * 5)
    mean = float(paired.mean())
    if n < 2:
        return Difference(n, mean, *[np.nan] * 4)
    # Differences of counts over one number of images are exact to a few ulps only.
    sd = 0.0 if np.ptp(paired) < 1e-12 else float(paired.std(ddof=1))
    from scipy.stats import t

    half = float(t.ppf((1 + CONFIDENCE) / 2, n - 1)) * sd / np.sqrt(n)
    return Difference(n, mean, mean - half, mean + half, sd, least_difference(sd, n) if sd > 0 else np.nan)
