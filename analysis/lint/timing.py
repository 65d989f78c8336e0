"""Rules on the times themselves: warm-up, dispersion, clusters, the order of launches, the cost of tracing."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.limits import NOTE, WARNING, Limit
from analysis.lint.experiment import COST, TIMES, Experiment, listed

WARM = 1.1  # the first repeat counts as a warm-up if it takes more than this times the median of the others
REPEATS = 3  # the fewest repeats of a launch in which a warm-up can be seen
DISPERSED = 0.1  # the largest accepted ratio of interquartile range and median
FEWEST = 6  # the fewest times for which quartiles are meaningful
CLUSTERED = 10  # the fewest times for which a gap is a sign of two clusters
OVERHEAD = 0.01  # the largest accepted share of tracing in the wall time
CHANCE = 0.05


def warm_up_included(experiment: Experiment) -> Iterator[Limit]:
    """The first repeat of a launch is much slower than the others: it includes the warm-up (rule 10)."""
    slow = []
    for run, same in experiment.timed.groupby("run", sort=False):
        wall = same.sort_values("repeat")["wall_s"].to_numpy()
        if len(wall) >= REPEATS and same["repeat"].min() == 0:
            ratio = wall[0] / np.median(wall[1:])
            if ratio > WARM and wall[0] > wall[1:].max():
                slow.append((ratio, run))
    if slow:
        slow.sort(reverse=True)
        yield Limit(
            WARNING, COST, listed(f"{run} ({ratio:.2f} times the others)" for ratio, run in slow),
            "the first repeat took longest: caches, libraries and connections were set up in it",
            "compare medians, or leave the first repeat of each launch out and say so",
        )  # fmt: skip


def unstable_times(experiment: Experiment) -> Iterator[Limit]:
    """Times scatter by more than 10 %: one number does not describe them (rule 8)."""
    wide = []
    for name, same in experiment.samples():
        if len(same) >= FEWEST:
            low, median, high = np.quantile(same["wall_s"], [0.25, 0.5, 0.75])
            if (high - low) / median > DISPERSED:
                wide.append(((high - low) / median, name, len(same)))
    if wide:
        wide.sort(reverse=True)
        yield Limit(
            WARNING, TIMES, listed(f"{name} ({width:.0%} of the median, n = {n})" for width, name, n in wide),
            "half of the times lie further apart than 10 % of their median",
            "show the points; look for other jobs on the nodes, frequency changes and shared cores",
        )  # fmt: skip


def several_clusters(experiment: Experiment) -> Iterator[Limit]:
    """Times fall into clusters: a median describes none of them (rule 8)."""
    split = []
    for name, same in experiment.samples():
        if edges := gap(same["wall_s"].to_numpy()):
            split.append(f"{name} (none between {edges[0]:.3g} s and {edges[1]:.3g} s, n = {len(same)})")
    if split:
        yield Limit(
            WARNING, TIMES, listed(split), "the times fall into two clusters",
            "find what tells the clusters apart (node, first repeats, placement) and report each",
        )  # fmt: skip


def order_not_shuffled(experiment: Experiment) -> Iterator[Limit]:
    """Launches ran configuration by configuration, so drift of the machine looks like a difference (rule 9)."""
    timed = experiment.launches[experiment.launches["run"].isin(experiment.timed["run"])]
    for (app, _), same in timed.groupby(["app", "problem"], sort=False):
        started = pd.to_datetime(same["started"], errors="coerce", utc=True, format="ISO8601")
        if started.isna().any() or started.duplicated().any():
            continue
        ordered = same.assign(at=started).sort_values("at")
        configurations = ordered["group"] + ordered["size"].astype("str")
        counts = configurations.value_counts().tolist()
        blocks = int((configurations != configurations.shift()).sum())
        if blocks == len(counts) and contiguous_by_chance(counts) <= CHANCE:
            yield Limit(
                NOTE, COST, app,
                f"{len(same)} launches of {len(counts)} configurations ran one configuration after the other",
                "shuffle the launches, so that what drifts with time does not look like a configuration",
            )  # fmt: skip


def tracing_overhead(experiment: Experiment) -> Iterator[Limit]:
    """Tracing took more than 1 % of the wall time, as ranks measured it (rule 10)."""
    timed = experiment.timed.groupby("run", sort=False).agg(wall=("wall_s", "sum"), own=("tracing_s", "max"))
    share = (timed["own"] / timed["wall"]).sort_values(ascending=False)
    heavy = share[share > OVERHEAD]
    if len(heavy):
        yield Limit(
            WARNING, TIMES, listed(f"{run} ({part:.1%})" for run, part in heavy.items()),
            "tracing took more than 1 % of the wall time",
            "read shares of regions with care; for whole times repeat with --trace off, or with larger problems",
        )  # fmt: skip


def contiguous_by_chance(counts: list[int]) -> float:
    """The probability that launches in random order are grouped by configuration; `counts`: launches of each."""
    ways = math.factorial(len(counts)) * math.prod(map(math.factorial, counts))
    return ways / math.factorial(sum(counts))


def gap(x: np.ndarray) -> tuple[float, float] | None:
    """The edges of a gap that separates the numbers `x` into two clusters; None if there is none.

    The gap is wider than half of the range, and on each side are a tenth of the numbers and at least two. There must be
    at least CLUSTERED numbers, with a range above 5 % of the median. Of samples of 10 uniform numbers 2 in 100 have
    such a gap (each spacing exceeds half of the range with probability 2^(2 - n)).
    """
    x = np.sort(x)
    n = len(x)
    if n < CLUSTERED or x[-1] - x[0] <= 0.05 * np.median(x):
        return None
    fewest = max(2, -(-n // 10))
    gaps = np.diff(x)[fewest - 1 : n - fewest]
    widest = int(gaps.argmax())
    if gaps[widest] <= (x[-1] - x[0]) / 2:
        return None
    return float(x[fewest - 1 + widest]), float(x[fewest + widest])
