"""The law of a growing rounding difference: |x_k - x_k'| ~ d exp(rate k) in the growth phase, k a step or an iteration.

A sample is the difference of one run (or solve) from a reference. The median of the samples determines the growth
phase. Each sample then has its own rate there, and the interval is over samples.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from analysis.statistics import line, median_interval
from kernels.as_json import Column

FEWEST = 3  # samples, and points of a sample in the growth phase
FEWEST_POINTS = 4  # of a piece of the broken line: any three points are nearly a line
MOST_PIECES = 5
POINTS = 600  # most steps in the search for pieces: beyond, evenly chosen ones
RISE = 100.0  # a growth phase has at least this factor
ALIKE = 2.0  # neighbouring pieces whose rates are within this factor are one phase
WIGGLE = 0.1  # of the logarithm: points within 10 % of a line count as on it

CROSSED = "at which the tolerance is crossed"
LAW = {
    "samples": Column("int64"), "first": Column("float64", "of the growth phase"),
    "last": Column("float64", "of the growth phase"), "rate": Column("float64", "growth of the logarithm"),
    "rate_low": Column("float64"), "rate_high": Column("float64"),
    "start": Column("float64", "relative difference (of fingerprints: fraction of blocks) at the beginning"),
    "rates": Column("int64", "samples with a rate"),
    "power": Column("bool", "a power fits better than an exponential"),
    "settled": Column("float64", "final level of the relative difference"),
    "largest": Column("float64", "relative difference"),
    "largest_at": Column("float64"), "tolerance": Column("float64"),
    "predicted": Column("float64", CROSSED), "predicted_low": Column("float64"), "predicted_high": Column("float64"),
    "observed": Column("float64", CROSSED), "observed_low": Column("float64"), "observed_high": Column("float64"),
    "crossed": Column("int64", "samples that reach the tolerance"),
    "nothing": Column("str", "why there is no rate; empty with a rate"),
}  # fmt: skip


def law(table: pd.DataFrame, tolerance: float = np.nan) -> dict[str, float | str]:
    """Fits the growth in `table`: relative differences, a row per step (the index) and a column per sample, NaN where
    not recorded. The keys of the result are LAW:

    samples         number of columns of `table`
    first, last     first and last step of the growth phase (`phase`) of the median over samples
    rate            growth of the logarithm per step. Least squares gives a rate for each of `rates` samples, in the
                    growth phase until the sample reaches the final value of the median there. `rate` is the median,
                    with its interval at 95 % (order statistics; NaN below 6 samples)
    start           the difference of the fitted growth at step 0, median over samples
    power           whether a power of the step fits the median in the growth phase better than an exponential
    settled         the level of saturation, or the remainder of a decaying difference: the median over samples, and
                    over the second half of the steps after the growth phase, or of all steps without one; NaN for
                    fewer than FEWEST_POINTS steps
    largest         largest median over samples, at step `largest_at`
    predicted       step at which the fitted growth of a sample crosses `tolerance`: median over samples, and interval
    observed        first step at which the difference of a sample reaches `tolerance`: the same, over the `crossed`
                    samples that reach it
    nothing         why there is no rate; empty with a rate
    """
    steps, y = table.index.to_numpy(np.float64), table.to_numpy(np.float64)
    fitted = dict.fromkeys(LAW, np.nan) | {
        "samples": y.shape[1], "rates": 0, "power": False, "tolerance": tolerance, "nothing": "",
        **_crossed(steps, y, tolerance),
    }  # fmt: skip
    median = typical(table)
    usable = np.isfinite(median) & (median > 0)
    if not usable.any():
        return fitted | {"nothing": "no difference in half of the samples at any step"}
    peak = int(np.argmax(np.where(usable, median, 0)))
    fitted |= {"largest": median[peak], "largest_at": steps[peak], "settled": _settled(median[usable])}
    if y.shape[1] < FEWEST:
        return fitted | {"nothing": f"{y.shape[1]} sample{'s' * (y.shape[1] > 1)}, a rate needs {FEWEST}"}
    x, logs = steps[usable], np.log(median[usable])
    ends = phase(x, logs)
    if ends is None:
        return fitted | {"nothing": f"no growth phase: no steady {RISE:g}-fold rise"}
    i, j = ends
    fitted |= {"first": x[i], "last": x[j], "power": _power(x[i : j + 1], logs[i : j + 1])}
    fitted["settled"] = _settled(median[usable][j + 1 :])
    inside = (steps >= x[i]) & (steps <= x[j])
    top = np.exp(logs[j])
    lines = [line for column in y[inside].T if (line := _line(steps[inside], column, top))]
    fitted["rates"] = len(lines)
    if len(lines) < FEWEST:
        return fitted | {
            "nothing": f"{len(lines)} samples differ throughout the growth phase, a rate needs {FEWEST}"
        }
    slopes, starts = np.array(lines).T
    fitted["rate"], fitted["rate_low"], fitted["rate_high"] = median_interval(slopes)
    fitted["start"] = float(np.exp(np.median(starts)))
    rising = slopes > 0
    if tolerance > 0 and rising.sum() >= FEWEST:
        at = (np.log(tolerance) - starts[rising]) / slopes[rising]
        fitted["predicted"], fitted["predicted_low"], fitted["predicted_high"] = median_interval(at)
    return fitted


def typical(table: pd.DataFrame) -> np.ndarray:
    """(steps,) float64 median over the samples with a finite number, NaN if none has one."""
    return table.where(np.isfinite(table)).median(axis=1).to_numpy()


def phase(x: np.ndarray, y: np.ndarray) -> tuple[int, int] | None:
    """(first, last) index of the growth phase of the logarithms `y` (n,) at the ascending steps `x` (n,), or None.

    `pieces` cuts `y` into at most MOST_PIECES pieces, each with its own least-squares line. The candidate is the piece
    that rises most, with neighbours whose rate is within a factor of ALIKE. It is the growth phase if it rises by a
    factor of at least RISE.
    """
    if len(x) < FEWEST_POINTS:
        return None
    thin = np.unique(np.linspace(0, len(x) - 1, min(len(x), POINTS)).astype(int))
    cuts = pieces(x[thin], y[thin])
    lines = [line(x[thin][i:j], y[thin][i:j])[0] for i, j in cuts]
    rises = [slope * (x[thin][j - 1] - x[thin][i]) for slope, (i, j) in zip(lines, cuts, strict=True)]
    k = low = high = int(np.argmax(rises))
    if lines[k] <= 0:
        return None
    alike = [1 / ALIKE <= slope / lines[k] <= ALIKE for slope in lines]
    while low > 0 and alike[low - 1]:
        low -= 1
    while high + 1 < len(cuts) and alike[high + 1]:
        high += 1
    first, last = int(thin[cuts[low][0]]), int(thin[cuts[high][1] - 1])
    rise = line(x[first : last + 1], y[first : last + 1])[0] * (x[last] - x[first])
    return (first, last) if rise >= np.log(RISE) else None


def pieces(x: np.ndarray, y: np.ndarray) -> list[tuple[int, int]]:
    """[(begin, end)] of the pieces of a broken line through `y` (n,) over `x` (n,).

    Least squares by dynamic programming (Bellman & Roth 1969) chooses pieces of at least FEWEST_POINTS points. The
    Bayesian information criterion, with three numbers per piece, chooses their number, at most MOST_PIECES."""
    n = len(x)
    cost = _squares(x, y)
    best = np.full((MOST_PIECES + 1, n + 1), np.inf)  # [pieces, points]: sum of squares
    came = np.zeros((MOST_PIECES + 1, n + 1), int)
    best[0, 0] = 0.0
    for k in range(1, MOST_PIECES + 1):
        total = best[k - 1][:, None] + cost
        came[k], best[k] = np.argmin(total, axis=0), np.min(total, axis=0)
    counts = np.arange(1, MOST_PIECES + 1)
    # The wiggle keeps pieces out that only explain deviations below it.
    score = n * np.log(best[1:, n] / n + WIGGLE**2) + 3 * counts * np.log(n)
    cuts, end = [], n
    for k in range(int(counts[np.argmin(score)]), 0, -1):
        begin = int(came[k, end])
        cuts.append((begin, end))
        end = begin
    return cuts[::-1]


def _squares(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """(n + 1, n + 1): the sum of squares about the line through points i ... j - 1, inf for too few points."""
    n = len(x)
    x, y = (x - x.mean()) / (np.ptp(x) or 1.0), y - y.mean()
    sums = [np.append(0.0, np.cumsum(term)) for term in (np.ones(n), x, y, x * x, x * y, y * y)]
    m, sx, sy, sxx, sxy, syy = (s[None, :] - s[:, None] for s in sums)
    with np.errstate(all="ignore"):
        cxx, cxy, cyy = sxx - sx * sx / m, sxy - sx * sy / m, syy - sy * sy / m
        rest = np.maximum(cyy - cxy * cxy / cxx, 0.0)
    return np.where(m >= FEWEST_POINTS, rest, np.inf)


def _settled(median: np.ndarray) -> float:
    half = median[len(median) // 2 :]
    return float(np.median(half)) if len(half) >= FEWEST_POINTS else np.nan


def _line(steps: np.ndarray, y: np.ndarray, top: float) -> tuple[float, float] | None:
    """(rate, logarithm at step 0) of one sample until it first reaches `top`, since a fast sample saturates beyond;
    None if fewer than FEWEST points differ."""
    end = int(np.argmax(y >= top)) + 1 if (y >= top).any() else len(y)
    steps, y = steps[:end], y[:end]
    good = np.isfinite(y) & (y > 0)
    if good.sum() < FEWEST:
        return None
    slope, start = line(steps[good], np.log(y[good]))
    return float(slope), float(start)


def _power(x: np.ndarray, logs: np.ndarray) -> bool:
    """Whether a line in log(x) fits the logarithms better than a line in x, by least squares."""
    good = x > 0
    if good.sum() < FEWEST_POINTS:
        return False
    rest = []
    for at in (x[good], np.log(x[good])):
        slope, start = line(at, logs[good])
        rest.append(((logs[good] - slope * at - start) ** 2).sum())
    return bool(rest[1] < rest[0])


def _crossed(steps: np.ndarray, y: np.ndarray, tolerance: float) -> dict[str, float]:
    """`observed` with its interval, and `crossed`, of LAW."""
    reached = y >= tolerance
    some = reached.any(axis=0)
    crossing: dict[str, float] = {"crossed": int(some.sum())}
    if some.any():
        interval = median_interval(steps[np.argmax(reached[:, some], axis=0)])
        crossing |= dict(zip(("observed", "observed_low", "observed_high"), interval, strict=True))
    return crossing
