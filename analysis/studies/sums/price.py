"""The price list: the time of a sum by each variant, and its ratio to the fastest variant without a guarantee."""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.groups import LEVELS
from analysis.statistics import SEED, median_interval, ratio_interval
from analysis.studies.sums.columns import PRICES
from analysis.studies.sums.runs import EMULATED, SERIES, Sums, keys, pieces

LIBRARIES = ("numpy", "torch", "cu")  # variants that are a library's own sum


def prices(sums: Sums) -> pd.DataFrame:
    """A row per variant and n; columns PRICES.

    `median_s`: seconds of one call on the slowest of the ranks that share the sum, median over samples of all runs of
    the case; `low_s` to `high_s`: its 95 % interval (order statistics, NaN for too few samples); `gb_per_s`: 1e9 bytes
    of these ranks per second. `base`: the fastest timed variant without a guarantee or from a library, for the same
    case, operation and n. `ratio`: ratio to `base` within a run, median over runs, with an interval by bootstrap over
    samples; NaN if no variant has a guarantee. Emulated variants have no price (NaN) and are never a base.
    """
    calls = _calls(sums.times)
    begin = pieces(calls, SERIES)
    frame = calls.iloc[begin][SERIES].reset_index(drop=True)
    frame["guarantee"] = [sums.guarantee(*row) for row in frame[SERIES[:4]].itertuples(index=False)]
    seconds = np.split(calls["seconds"].to_numpy(), begin[1:]) if len(begin) else []
    nbytes = np.split(calls["nbytes"].to_numpy(), begin[1:]) if len(begin) else []
    runs = np.split(keys(calls, ["run", "repeat"]), begin[1:]) if len(begin) else []
    sold = (frame["backend"] != EMULATED).to_numpy()
    medians = [median_interval(x) if paid else (np.nan,) * 3 for x, paid in zip(seconds, sold, strict=True)]
    frame["samples"] = [len(x) for x in seconds]
    frame[["median_s", "low_s", "high_s"]] = np.reshape(medians, (-1, 3))
    size = np.array([np.median(x) for x in nbytes])
    frame["gb_per_s"] = np.where(size > 0, size / frame["median_s"] / 1e9, np.nan)
    base = _bases(frame)
    ratios = [
        (1.0, np.nan, np.nan) if i == j
        else _ratio(seconds[i], runs[i], seconds[j], runs[j]) if j >= 0 and sold[i] else (np.nan,) * 3
        for i, j in enumerate(base)
    ]  # fmt: skip
    frame[["ratio", "ratio_low", "ratio_high"]] = np.reshape(ratios, (-1, 3))
    name = (frame["variant"].astype("str") + " (" + frame["backend"].astype("str") + ")").to_numpy()
    named = [name[j] if j >= 0 and paid else "" for j, paid in zip(base, sold, strict=True)]
    frame["base"] = pd.Series(named, dtype="str")
    return frame[list(PRICES)]


def _ratio(x: np.ndarray, x_runs: np.ndarray, y: np.ndarray, y_runs: np.ndarray) -> tuple[float, ...]:
    """(ratio, low, high): the ratio of medians within a run, median over runs, and the range of the runs' intervals."""
    ratios = [
        ratio_interval(x[x_runs == run], y[y_runs == run], seed=SEED + i)
        for i, run in enumerate(np.intersect1d(x_runs, y_runs))
    ]
    if not ratios:
        return (np.nan,) * 3
    ratio, low, high = np.array(ratios).T
    return float(np.median(ratio)), float(np.min(low)), float(np.max(high))


def _calls(times: pd.DataFrame) -> pd.DataFrame:
    """A row per SERIES, run, repeat, sample and team, sorted by SERIES: `seconds` of a call on the team's slowest rank,
    `nbytes` of all its ranks."""
    place = [*SERIES, "run", "repeat", "sample", "team"]
    times = times.iloc[np.argsort(keys(times, place), kind="stable")]
    begin = pieces(times, place)
    frame = times.iloc[begin][place].reset_index(drop=True)
    if not len(begin):
        return frame.assign(seconds=np.empty(0), nbytes=np.empty(0))
    return frame.assign(
        seconds=np.maximum.reduceat(times["seconds"].to_numpy(), begin),
        nbytes=np.add.reduceat(times["nbytes"].to_numpy(), begin),
    )


def _bases(frame: pd.DataFrame) -> list[int]:
    """The index of the base of each row, or -1."""
    base = np.full(len(frame), -1)
    for _, same in frame.groupby(["case", "operation", "n"], observed=True, sort=False):
        timed = same[same["median_s"].notna()]
        plain = (timed["guarantee"] == LEVELS[0]) | timed["variant"].isin(LIBRARIES)
        if plain.any() and (~plain & timed["guarantee"].isin(LEVELS[1:])).any():
            base[same.index] = timed.loc[plain, "median_s"].idxmin()
    return base.tolist()
