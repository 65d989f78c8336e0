"""Growth of variability with the number of elements: |V_s| ~ beta N^alpha."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.statistics import CONFIDENCE, line
from analysis.studies.contract import frame
from analysis.studies.sums.columns import FITS
from analysis.studies.sums.runs import SERIES

FEWEST_SIZES = 3  # two points always fit a line
RESAMPLES = 1000
SEED = 20240805
METRICS = ("v_s_max", "v_s_quantile")


def fits(arrays: pd.DataFrame) -> pd.DataFrame:
    """Fits power laws to `arrays`, from `analysis.studies.sums.statistics.of_arrays`: a row per variant whose samples
    differ, and metric of METRICS; columns FITS.

    `sizes`: number of sizes of the fit; `left_out`: sizes whose median over arrays is 0 or not finite; `arrays`: the
    fewest of a size; `samples`, `samples_most`: fewest and most samples of an array. The maximum grows with the number
    of samples, so maxima over different numbers form no power law. `nothing`: why there is no fit.
    """
    rows = []
    for key, same in arrays.groupby(SERIES[:4], observed=True, sort=True):
        if not (same["distinct"] > 1).any():
            continue
        for metric in METRICS:
            points = [
                (n, here[metric].to_numpy()) for n, here in same.groupby("n") if here[metric].notna().any()
            ]
            used = [(n, y[~np.isnan(y)]) for n, y in points]
            used = [(n, y) for n, y in used if 0 < np.median(y) < np.inf and n > 0]
            law = power_law([n for n, _ in used], [y for _, y in used])
            rows.append(
                {
                    **dict(zip(SERIES[:4], key, strict=True)), "metric": metric, "sizes": len(used),
                    "left_out": same["n"].nunique() - len(used),
                    "arrays": min((len(y) for _, y in used), default=0),
                    "samples": int(same["samples"].min()), "samples_most": int(same["samples"].max()), **law,
                }
            )  # fmt: skip
    return frame(rows, FITS)


def power_law(sizes: list[int], samples: list[np.ndarray], seed: int = SEED) -> dict[str, float | str]:
    """Fits y = beta N^alpha by least squares on the logarithms of the medians over arrays.

    `samples`: the y of the arrays of each of the `sizes`; each median must be positive. The result has `alpha`, `beta`,
    their 95 % percentile intervals by a bootstrap over the arrays of each size (RESAMPLES draws), and `nothing`, the
    reason for a missing number. All are NaN for fewer than FEWEST_SIZES sizes; only the intervals are NaN if a size has
    one array.
    """
    names = ("alpha", "alpha_low", "alpha_high", "beta", "beta_low", "beta_high")
    if len(sizes) < FEWEST_SIZES:
        why = f"{len(sizes)} sizes with a difference in half of the arrays, a fit needs {FEWEST_SIZES}"
        return {name: np.nan for name in names} | {"nothing": why}
    x = np.log(np.asarray(sizes, np.float64))
    alpha, beta = line(x, np.log([np.median(y) for y in samples]))
    law = {"alpha": float(alpha), "beta": float(np.exp(beta))}
    fewest = min(map(len, samples))
    if fewest < 2:
        return {name: np.nan for name in names} | law | {"nothing": "no interval: one array of a size"}
    rng = np.random.default_rng(seed)
    drawn = np.stack([np.median(rng.choice(y, (RESAMPLES, len(y))), axis=1) for y in samples], axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(drawn)
    alphas, betas = line(x, logs[np.isfinite(logs).all(axis=1)])
    tail = (1 - CONFIDENCE) / 2
    law["alpha_low"], law["alpha_high"] = map(float, np.quantile(alphas, [tail, 1 - tail]))
    law["beta_low"], law["beta_high"] = map(float, np.exp(np.quantile(betas, [tail, 1 - tail])))
    return law | {"nothing": ""}
