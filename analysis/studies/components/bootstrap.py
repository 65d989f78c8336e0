"""Intervals of variance components by the cluster bootstrap.

The bootstrap draws whole units of one random factor (such as allocations) with replacement, with all their
measurements. Each draw counts as a separate unit (Field & Welsh, Bootstrapping clustered data, J. R. Statist. Soc. B 69
(2007) 369-390). Endpoints are bias-corrected and accelerated (BCa: Efron, Better bootstrap confidence intervals,
J. Am. Statist. Assoc. 82 (1987) 171-185); leaving out one unit at a time gives the acceleration.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np

from analysis.statistics import CONFIDENCE
from analysis.studies.components.henderson import Rows, estimate

RESAMPLES = 999
USED = 0.9  # share of resamples that need an estimate: others lost a level that the component needs


def replicates(
    rows: Rows,
    cluster: np.ndarray,
    strata: np.ndarray,
    statistic: Callable,
    seed: int,
    resamples: int = RESAMPLES,
) -> tuple[np.ndarray, np.ndarray]:
    """(`statistic(variance)` of each resample (resamples, ...), the same with one unit left out (units, ...)).

    `cluster` (m,): the unit of each row; `strata` (m,): a coarser partition, within which units are drawn.
    """
    units, place = np.unique(cluster, return_inverse=True)
    place = place.ravel()
    members = [np.flatnonzero(place == unit) for unit in range(len(units))]
    stratum = np.array([strata[own[0]] for own in members])
    pools = [np.flatnonzero(stratum == s) for s in np.unique(stratum)]
    inside = np.array([_nested(column, place) for column in rows.codes.T], bool)
    rng = np.random.default_rng(seed)

    def of(drawn: np.ndarray) -> np.ndarray:
        index = np.concatenate([members[unit] for unit in drawn])
        draw = np.repeat(np.arange(len(drawn)), [len(members[unit]) for unit in drawn])
        codes = rows.codes[index]
        # Each draw of a unit has new levels of the factors inside the unit.
        codes[:, inside] += draw[:, None] * (rows.codes.max(initial=0) + 1)
        return statistic(
            estimate(Rows(codes, rows.weight[index], rows.mean[index], rows.within[index])).variance
        )

    drawn = [np.concatenate([rng.choice(pool, len(pool)) for pool in pools]) for _ in range(resamples)]
    left_out = [np.delete(np.arange(len(units)), unit) for unit in range(len(units))]
    return np.stack([of(some) for some in drawn]), np.stack([of(some) for some in left_out])


def bca(
    value: np.ndarray,
    drawn: np.ndarray,
    left_out: np.ndarray,
    corrected: np.ndarray,
    confidence: float = CONFIDENCE,
) -> tuple[np.ndarray, np.ndarray]:
    """(low, high) of `value` (...) from its replicates `drawn` (resamples, ...) and `left_out` (units, ...); NaN if
    fewer than USED of the resamples have a value. Plain percentiles where `corrected` (...) is false."""
    ends = []
    for at in np.ndindex(value.shape):
        d, j = drawn[(slice(None), *at)], left_out[(slice(None), *at)]
        d = d[~np.isnan(d)] if (~np.isnan(d)).mean() >= USED else d[:0]
        ends.append(_ends(float(value[at]), d, j[~np.isnan(j)], bool(corrected[at]), confidence))
    low, high = np.array(ends).reshape(-1, 2).T
    return low.reshape(value.shape), high.reshape(value.shape)


def _ends(
    value: float, drawn: np.ndarray, left_out: np.ndarray, corrected: bool, confidence: float
) -> tuple[float, float]:
    if not len(drawn) or len(left_out) < 2 or math.isnan(value):
        return math.nan, math.nan
    tails = (1 - confidence) / 2, (1 + confidence) / 2
    if not corrected:
        low, high = np.quantile(drawn, tails, method="inverted_cdf")
        return float(low), float(high)
    normal, edge = NormalDist(), 0.5 / len(drawn)
    # Ties count half: shares are often exactly 0 or 1.
    below = ((drawn < value).sum() + 0.5 * (drawn == value).sum()) / len(drawn)
    bias = normal.inv_cdf(min(max(below, edge), 1 - edge))
    pull = left_out.mean() - left_out
    spread = (pull**2).sum() ** 1.5
    bend = float((pull**3).sum() / (6 * spread)) if spread > 0 else 0.0
    places = []
    for q in tails:
        z = bias + normal.inv_cdf(q)
        places.append(normal.cdf(bias + z / (1 - bend * z)) if bend * z < 1 else 1.0)
    low, high = np.quantile(drawn, places, method="inverted_cdf")
    return float(low), float(high)


def _nested(codes: np.ndarray, unit: np.ndarray) -> bool:
    """Whether every level lies within one unit."""
    return len(np.unique(np.stack([codes, unit], axis=1), axis=0)) == len(np.unique(codes))
