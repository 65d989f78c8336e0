"""Rules on the number of measurements, and on claims about them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from analysis.limits import ERROR, NOTE, WARNING, Limit
from analysis.lint.experiment import COST, GROUPS, VARIABILITY, Experiment, listed
from analysis.statistics import CONFIDENCE, median_interval

FEWEST = 6  # the smallest sample for which order statistics give a 95 % interval of the median
SMALL = 0.01  # the relative difference of two times that an experiment should be able to show


def missing_base_case(experiment: Experiment) -> Iterator[Limit]:
    """Several rank counts were timed, but not 1: a speedup has no serial base (rule 1)."""
    for group, same in experiment.timed.groupby("group", sort=False):
        sizes = sorted(set(same["size"].tolist()))
        if len(sizes) > 1 and sizes[0] > 1:
            yield Limit(
                WARNING, COST, group,
                f"timed on {', '.join(map(str, sizes))} ranks, never on 1",
                f"run it on 1 rank too, or say that every speedup is relative to {sizes[0]} ranks",
            )  # fmt: skip


def few_repeats(experiment: Experiment) -> Iterator[Limit]:
    """A sample has fewer than 6 times: no 95 % interval of its median exists (rule 5)."""
    few = [(name, len(same)) for name, same in experiment.samples() if len(same) < FEWEST]
    if few:
        least, most = min(n for _, n in few), max(n for _, n in few)
        yield Limit(
            WARNING, COST, listed(name for name, _ in few),
            f"{least if least == most else f'{least} to {most}'} times each: no 95 % interval of a median exists, so "
            "that no difference of two medians is shown to be one",
            f"at least {FEWEST} repeats of each, or state no difference",
        )  # fmt: skip


def wide_interval(experiment: Experiment) -> Iterator[Limit]:
    """The interval of a median is so wide that a difference of 1 % cannot be seen (rule 7)."""
    wide = []
    for name, same in experiment.samples():
        median, low, high = median_interval(same["wall_s"].to_numpy())
        half = (high - low) / 2 / median
        if half > SMALL:  # false for NaN, which few_repeats reports
            # The width of an interval falls with the square root of the sample size.
            wide.append(
                (
                    half,
                    f"{name} (± {half:.1%} with {len(same)})",
                    round(len(same) * (half / SMALL) ** 2),
                )
            )
    if wide:
        wide.sort(reverse=True)
        yield Limit(
            NOTE, COST, listed(text for _, text, _ in wide),
            "the 95 % interval of the median is wider than ± 1 %: a difference of 1 % cannot be told",
            f"about {max(n for _, _, n in wide):,} repeats for ± 1 %, or claim only what the intervals allow",
        )  # fmt: skip


def mean_of_ratios(experiment: Experiment) -> Iterator[Limit]:
    """V_ermv is a mean of ratios, which a single element near zero can dominate (rules 3 and 4)."""
    ruled = dict.fromkeys(
        pairs.name
        for pairs in experiment.overview.pairs
        if pairs.kind == "values" and pairs.elements > 1 and pairs.differing
        if (pairs.metrics["v_ermv"] > 0).any()
    )
    if ruled:
        yield Limit(
            NOTE, VARIABILITY, listed(ruled),
            "V_ermv, as published, is an arithmetic mean of ratios: an element near zero can make up all of it",
            "read the largest ULP and V_c beside it, and do not average V_ermv further",
        )  # fmt: skip


def only_one_sample(experiment: Experiment) -> Iterator[Limit]:
    """No run is complete, or a cell has a single run: no statement on equality follows (rule 5)."""
    runs = experiment.runs
    if runs.empty:
        yield Limit(
            ERROR, GROUPS, "all runs", "no run is complete: nothing can be concluded",
            "see the reasons among what was left out, and repeat the runs",
        )  # fmt: skip
        return
    alone = [cell for cell, same in runs.groupby("cell", sort=False) if len(same) < 2]
    if alone:
        yield Limit(
            WARNING, GROUPS, listed(alone), "one run each: whether it repeats is not known",
            f"at least 2 runs; {runs_for(0.05)} to exclude at {CONFIDENCE:.0%} that 5 % of runs differ",
        )  # fmt: skip


def runs_for(share: float) -> int:
    """The number of equal runs that show, with CONFIDENCE, that less than `share` of all runs differ."""
    return int(np.ceil(np.log(1 - CONFIDENCE) / np.log(1 - share)))
