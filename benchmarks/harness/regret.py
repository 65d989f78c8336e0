"""The regret of a policy against the best fixed wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

CONFIDENCE = 0.95
RESAMPLES = 9999


@dataclass(frozen=True)
class Regret:
    """The mean over `seeds` of the outcome of the fixed wire `best` minus that of the policy, and the ends of its
    interval, which are NaN for fewer than two seeds."""

    best: str
    mean: float
    low: float
    high: float
    seeds: int


def regret(
    fixed: Mapping[str, ArrayLike], policy: ArrayLike, confidence: float = CONFIDENCE, seed: int = 1
) -> Regret:
    """The outcome of the best fixed wire minus that of the policy, in the same time, paired by seed.

    fixed: {wire: (n,)} and policy (n,), float64: outcomes (more is better, such as accuracy) of runs with seeds
    0 ... n - 1. The best wire has the largest mean; the first one wins ties. The interval is a percentile bootstrap of
    the mean difference over seeds, with random numbers from `seed`. Raises ValueError for no wire, no seed, different
    numbers of seeds, or outcomes that are not finite.
    """
    reached = np.asarray(policy, np.float64)
    outcomes = {wire: np.asarray(values, np.float64) for wire, values in fixed.items()}
    if not outcomes or reached.ndim != 1 or not len(reached):
        raise ValueError("give at least one fixed wire, and the outcome of at least one seed")
    for wire, values in {"the policy": reached, **outcomes}.items():
        if values.shape != reached.shape:
            raise ValueError(
                f"{wire} has outcomes {values.shape}, the policy {reached.shape}: give the same seeds"
            )
        if not np.isfinite(values).all():
            raise ValueError(f"an outcome of {wire} is not finite: give a finite outcome to failed runs")
    best = max(outcomes, key=lambda wire: outcomes[wire].mean())
    low, high = interval(outcomes[best] - reached, confidence, seed)
    return Regret(best, float((outcomes[best] - reached).mean()), low, high, len(reached))


def interval(differences: np.ndarray, confidence: float, seed: int) -> tuple[float, float]:
    """The bootstrap interval of the mean of `differences` (n,); NaN for fewer than two."""
    if len(differences) < 2:
        return np.nan, np.nan
    from scipy.stats import bootstrap

    bounds = bootstrap(
        (differences,), np.mean, n_resamples=RESAMPLES, confidence_level=confidence, method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval  # fmt: skip
    return float(bounds.low), float(bounds.high)
