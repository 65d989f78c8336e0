"""Costs of a program's segments of work: fixed + per work.

A segment on a rank with w of the work takes a + b w. The fixed part does not shrink with more ranks: calls, loops over
iterations, work that all ranks repeat. Runs whose ranks have different shares of the work determine it. With one share
only, it is the calibrated overhead of a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from analysis.predict.reading.skeleton import Key, Skeleton

TRIMMED = (0.02, 0.98)  # quantiles within which the residuals of a key are kept
TWO, ONE = "fixed + per work", "fixed from the calibration"  # how a cost was fitted


@dataclass(frozen=True)
class SegmentCost:
    """Seconds `fixed` + `per_work` w of a segment on a rank with w of the work. `residuals` (n,): measured times over
    their mean. `how`: the form of the fit, in words."""

    fixed: float
    per_work: float
    residuals: np.ndarray
    how: str

    def seconds(self, work: np.ndarray) -> np.ndarray:
        """Seconds of ranks with `work` (ranks,)."""
        return self.fixed + self.per_work * work

    def faster(self, speed: float) -> SegmentCost:
        """The cost on cores that are `speed` times as fast."""
        return replace(self, fixed=self.fixed / speed, per_work=self.per_work / speed)


def segment_costs(runs: Sequence[Skeleton], program: Skeleton, least: float) -> dict[Key, SegmentCost]:
    """The cost of every key of `runs`; `least` (s) is the fixed part of a segment with one known share of work.

    The costs reproduce the times of `program`, one of the runs. The other runs, made at another rate of the machine,
    determine only how a segment depends on the work.
    """
    rows = pd.concat(
        [run.segments.assign(work=run.share, run=i) for i, run in enumerate(runs)], ignore_index=True
    )
    costs = {}
    for key, own in rows.groupby("key", sort=False):
        by = own.groupby("work")["ns"].mean() / 1e9
        fixed, per_work, how = _fit(by.index.to_numpy(float), by.to_numpy(float), least)
        if program.share in by.index and (fitted := fixed + per_work * program.share) > 0:
            rate = float(by[program.share]) / fitted
            fixed, per_work = fixed * rate, per_work * rate
        costs[key] = SegmentCost(fixed, per_work, residuals_of(own), how)
    return costs


def residuals_of(own: pd.DataFrame) -> np.ndarray:
    """(n,) times of the segments of one key over the mean of their run and work. `own`: columns `run`, `work`, `ns`."""
    usual = own.groupby(["run", "work"])["ns"].transform("mean")
    residuals = (own["ns"] / usual.where(usual > 0)).fillna(1.0).to_numpy()
    low, high = np.quantile(residuals, TRIMMED)
    residuals = np.clip(residuals, low, high)
    return residuals / max(residuals.mean(), 1e-12)


def _fit(work: np.ndarray, seconds: np.ndarray, least: float) -> tuple[float, float, str]:
    """(fixed, per work, form of the fit), by relative nonnegative least squares."""
    if len(work) == 1:
        fixed = min(least, float(seconds[0]))
        return fixed, (float(seconds[0]) - fixed) / work[0], ONE
    weight = 1.0 / np.maximum(seconds, 1e-12)
    scale = work.max()  # brings both columns to one range
    (fixed, per_work), _ = nnls(np.stack([weight, weight * work / scale], axis=1), np.ones(len(work)))
    return float(fixed), float(per_work / scale), TWO
