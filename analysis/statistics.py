"""Computes medians, quantiles, intervals and lines that assume no distribution."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

CONFIDENCE = 0.95
RESAMPLES = 4000  # resamples of a bootstrap
SEED = 20240805


def quantile(x: np.ndarray, q: float) -> np.ndarray:
    """The q-quantile of the elements that are not NaN along the last axis, by the inverted distribution function.

    NaN if there are none. The result is always one of the elements."""
    ordered = np.sort(x, axis=-1)  # NaN last
    defined = (~np.isnan(x)).sum(axis=-1)
    place = np.clip(np.ceil(q * defined).astype(np.int64) - 1, 0, max(x.shape[-1] - 1, 0))
    if not x.shape[-1]:
        return np.full(x.shape[:-1], np.nan)
    return np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0]


def middle(x: np.ndarray) -> np.ndarray:
    """The lower median of the elements that are not NaN along the last axis; NaN if there are none."""
    return quantile(x, 0.5)


def median_interval(x: np.ndarray, confidence: float = CONFIDENCE) -> tuple[float, float, float]:
    """(median of `x`, low, high): an interval of the median of its distribution with at least `confidence`.

    The bounds are order statistics and hold for any distribution; NaN if there are too few numbers (at 95 %: 5 or
    fewer). They are the bounds of `scipy.stats.quantile_test` (Conover, Practical Nonparametric Statistics, section
    3.2), which takes 50 times as long for a sample.
    """
    x = np.sort(x)
    k = _bound(len(x), confidence)
    if k < 0:
        return float(np.median(x)), np.nan, np.nan
    return float(np.median(x)), float(x[k]), float(x[len(x) - 1 - k])


@lru_cache
def _bound(n: int, confidence: float) -> int:
    """The place, from 0, of the lower bound in a sorted sample of n; negative if there is none."""
    from scipy.stats import binom

    return int(binom.ppf((1 - confidence) / 2, n, 0.5)) - 1


def ratio_interval(
    x: np.ndarray, y: np.ndarray, confidence: float = CONFIDENCE, seed: int = SEED
) -> tuple[float, float, float]:
    """(median(x) / median(y), low, high): its percentile interval by a bootstrap of both.

    The bounds are NaN if either sample has fewer than 6 numbers.

    The median of a resample of n out of n is the sorted sample at the place floor(n U), U the middle of n uniform
    numbers: Beta(k, n + 1 - k) with k = (n + 1) / 2. So no resample is drawn, and its cost does not grow with n.
    """
    ratio = float(np.median(x) / np.median(y))
    if min(len(x), len(y)) < 6:
        return ratio, np.nan, np.nan
    rng = np.random.default_rng(seed)
    drawn = [_medians(sample, rng) for sample in (x, y)]
    tail = (1 - confidence) / 2
    low, high = np.quantile(drawn[0] / drawn[1], [tail, 1 - tail])
    return ratio, float(low), float(high)


def _medians(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    k = (len(x) + 1) / 2
    return np.sort(x)[(len(x) * rng.beta(k, len(x) + 1 - k, RESAMPLES)).astype(np.int64)]


def line(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Slope and intercept of the least-squares lines through (x, y), y of shape (..., len(x))."""
    centred = x - x.mean()
    slope = (y * centred).sum(axis=-1) / (centred**2).sum()
    return slope, np.mean(y, axis=-1) - slope * x.mean()
