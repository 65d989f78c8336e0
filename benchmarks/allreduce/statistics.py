"""Statistics of repeated times: median, its interval by order statistics, a high quantile, ratios by rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from fractions import Fraction
from functools import cache

from benchmarks.harness.turns import ratio

OUTSIDE = Fraction(1, 20)  # the interval misses the true median with at most this probability


@cache
def interval_rank(n: int) -> tuple[int, float]:
    """(k, coverage): the k-th smallest and the k-th largest of n independent values enclose the true median.

    k is the largest with a coverage of at least 95 %, for any distribution: the number of values below the median is
    binomial with probability 1/2. With fewer than 6 values the smallest and the largest cover less; then k is 1.
    """
    below, term, k, coverage = 0, 1, 1, 0.0
    for j in range(n):
        below += term  # of 2**n, the cases with at most j values below the median
        outside = Fraction(2 * below, 2**n)
        if j and outside > OUTSIDE:
            break
        k, coverage = j + 1, float(max(0, 1 - outside))
        term = term * (n - j) // (j + 1)
    return k, coverage


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The interval of the median that `interval_rank` describes."""
    ordered = sorted(values)
    k, _ = interval_rank(len(ordered))
    return ordered[k - 1], ordered[-k]


def quantile(values: Sequence[float], q: float) -> float:
    """The smallest value that at least a fraction `q` of all values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def figures(rounds: Sequence[dict], nbytes: int, size: int) -> dict:
    """The columns of one cell, in seconds and bytes per second, from its rounds.

    A round has `times` of all ranks together for each valid repetition; `own`, the mean of each rank's own time;
    `late`, the repetitions left out; `wrong`, None for unchecked results. t_min, t_avg and t_max are over the ranks, as
    in the OSU benchmarks; algbw and busbw are of the median, as nccl-tests define them.
    """
    times = [t for visit in rounds for t in visit["times"]]
    checked = [visit["wrong"] for visit in rounds if visit["wrong"] is not None]
    common = {
        "repetitions": len(times),
        "late": sum(visit["late"] for visit in rounds),
        "wrong": sum(checked) if checked else None,
    }
    if not times:
        return common | dict.fromkeys(
            ("t_min", "t_avg", "t_max", "median", "interval", "p99", "algbw", "busbw")
        )
    own = [per_repetition(rounds, rank) for rank in range(size)]
    median = statistics.median(times)
    return common | {
        "t_min": min(own),
        "t_avg": statistics.fmean(own),
        "t_max": max(own),
        "median": median,
        "interval": interval(times),
        "p99": quantile(times, 0.99),
        "algbw": nbytes / median,
        "busbw": nbytes / median * 2 * (size - 1) / size,
    }


def per_repetition(rounds: Sequence[dict], rank: int) -> float:
    """The mean of a rank's own time over all repetitions of all rounds."""
    valid = [(len(visit["times"]), visit["own"][rank]) for visit in rounds if visit["times"]]
    return sum(count * mean for count, mean in valid) / sum(count for count, _ in valid)


def against(rounds: Sequence[dict], base: Sequence[dict]) -> dict | None:
    """Ratio of the medians round by round: median, extremes and number; None where no round has both."""
    pairs = [
        (statistics.median(one["times"]), statistics.median(other["times"]))
        for one, other in zip(rounds, base, strict=True)
        if one["times"] and other["times"]
    ]
    return ratio(*zip(*pairs, strict=True)) if pairs else None
