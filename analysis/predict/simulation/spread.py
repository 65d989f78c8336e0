"""Spread of a run's time around its predicted median, from causes outside the replay.

    ln(factor) = m z + t (z' + e / sqrt(n)) + f t' + g z"

m: spread of the machine's rate between rounds of the calibration. t: spread between launches of the source runs. Few
launches determine t, so it is drawn with Student's distribution. The median rests on n launches, so its own error is t
over sqrt(n). f: residual of the fit of costs to three or more shares of the work, also with Student's distribution.
g: error on other rank counts than the program's, if there is no third share to measure it. The machine's z, z' and z"
are the same for all targets; e and t' belong to the sources of a prediction and have their own generator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from analysis.predict.costs.segments import SegmentCost
from analysis.predict.reading.skeleton import Key, Skeleton
from analysis.predict.simulation.counts import Law
from analysis.predict.simulation.target import alike

SPREAD = 0.05  # of the logarithm of a run's time between runs, if nothing measured it
LEAST_SPREAD = 0.02  # of two runs in quiet moments
# Error on other rank counts: root mean square, over applications, of the bias of two ranks predicted from one, in CPU
# time (`predict-2-cores-2026-11-24.json`). Another measurement tests how often intervals hold.
OTHER_RANKS = 0.05
MOST = math.log(10.0)  # limit of a logarithm: few degrees of freedom have extreme tails
WIDENED = (
    f"the interval has a fixed error of {OTHER_RANKS:.0%} for another number of ranks than that of the runs: nothing "
    "measured it; runs of three shares of the work (the deck, half and three quarters of it) do"
)
REPEATS = "launches were not repeated: repeats of one launch may differ less than launches do"


@dataclass(frozen=True)
class Spread:
    """Standard deviations of logarithms: `machine`; `launches` with its degrees of `freedom` (0 if unknown), for a
    median over `sources` launches; `fit` with its `fit_freedom`; `ranks`, for other rank counts; that of the law
    `counts` of iterations, which are the share `iterating` of the work. `remarks`: limits of these."""

    machine: float
    launches: float = 0.0
    freedom: int = 0
    sources: int = 1
    fit: float = 0.0
    fit_freedom: int = 0
    ranks: float = 0.0
    remarks: tuple[str, ...] = ()
    counts: Law | None = None
    iterating: float = 0.0

    def factors(self, replays: int, rng: np.random.Generator, own: np.random.Generator) -> np.ndarray:
        """(replays,) factors of the time of a step. `rng` draws for the machine, `own` for the prediction's sources."""
        logs = self.machine * rng.standard_normal(replays)
        shared = rng.standard_normal(replays)
        if self.freedom:
            known = np.sqrt(rng.chisquare(self.freedom, replays) / self.freedom)
            off = shared + own.standard_normal(replays) / math.sqrt(self.sources)
            logs += np.clip(self.launches * off / known, -MOST, MOST)
        if self.fit_freedom and self.fit > 0:
            logs += np.clip(self.fit * own.standard_t(self.fit_freedom, replays), -MOST, MOST)
        if self.counts is not None and self.counts.freedom:
            off = np.clip(self.counts.error * own.standard_t(self.counts.freedom, replays), -MOST, MOST)
            logs += np.log1p(self.iterating * np.expm1(off))
        if self.ranks > 0:
            logs += self.ranks * rng.standard_normal(replays)
        return np.exp(logs)


def spread_of(
    runs: Sequence[Skeleton],
    program: Skeleton,
    costs: Mapping[Key, SegmentCost],
    calibrated: float,
    clock: str,
    moved: bool,
    size: int,
) -> Spread:
    """The spread of predictions for `size` ranks from `runs`, with `program` as the replayed run. `calibrated`: the
    calibration's spread, NaN without one; `moved`: whether the share of the work differs from the program's."""
    launches, freedom, repeated = between_launches(runs, clock)
    unknown = SPREAD if not freedom else 0.0
    machine = unknown if math.isnan(calibrated) else max(LEAST_SPREAD, calibrated)
    launches = launches if freedom else 0.0
    sources = [run for run in runs if run.share == program.share]
    fit, fit_freedom = fit_error(runs, costs, launches) if moved else (0.0, 0)
    ranks = OTHER_RANKS if size != program.size and not fit_freedom else 0.0
    return Spread(
        machine,
        launches,
        freedom,
        max(1, len(sources)),
        fit,
        fit_freedom,
        ranks,
        (*([] if repeated else [REPEATS]), *([WIDENED] if ranks else [])),
    )


def between_launches(runs: Sequence[Skeleton], clock: str) -> tuple[float, int, bool]:
    """(standard deviation of ln(seconds per step) of single repeats around the mean of their configuration, at least
    LEAST_SPREAD; its degrees of freedom; False if it comes from repeats of single launches). A configuration is the
    launches of one problem, method and rank count; the deviation pools all configurations."""
    groups: dict[tuple, list[np.ndarray]] = {}
    for run in runs:
        seconds = np.array([each[clock == "wall"] for each in run.repeats], float)
        if len(seconds := seconds[np.isfinite(seconds) & (seconds > 0)]):
            key = run.size, run.attributes.get("problem"), alike(run)
            groups.setdefault(key, []).append(np.log(seconds))
    launches = [each for group in groups.values() for each in group]
    within_freedom = sum(len(each) - 1 for each in launches)
    within = sum(float(((each - each.mean()) ** 2).sum()) for each in launches) / max(within_freedom, 1)
    freedom, squares = 0, 0.0
    for group in groups.values():
        means = np.array([each.mean() for each in group])
        freedom += len(means) - 1
        squares += float(((means - means.mean()) ** 2).sum())
    if not freedom:
        return max(LEAST_SPREAD, math.sqrt(within)), within_freedom, not within_freedom
    # The mean of a launch with n repeats has 1 / n of the variance within launches, a single repeat has all of it.
    kept = within * (1.0 - float(np.mean([1.0 / len(each) for each in launches])))
    return max(LEAST_SPREAD, math.sqrt(squares / freedom + kept)), freedom, True


def fit_error(
    runs: Sequence[Skeleton], costs: Mapping[Key, SegmentCost], launches: float
) -> tuple[float, int]:
    """(standard deviation of ln(measured / fitted) of whole steps over the shares of the work, less the spread between
    launches; its degrees of freedom, 0 for two shares or fewer)."""
    logs: dict[float, list[float]] = {}
    for run in runs:
        keys = run.segments.groupby("key", sort=False)["ns"].agg(["sum", "size"])
        share = np.array([run.share])
        fitted = sum(float(costs[key].seconds(share)[0]) * size for key, size in keys["size"].items())
        if fitted > 0 and keys["sum"].sum() > 0:
            logs.setdefault(run.share, []).append(math.log(keys["sum"].sum() / 1e9 / fitted))
    if len(logs) < 3:
        return 0.0, 0
    means = np.array([np.mean(each) for each in logs.values()])
    freedom = len(means) - 2
    variance = float(((means - means.mean()) ** 2).sum()) / freedom
    mixed = launches**2 * float(np.mean([1.0 / len(each) for each in logs.values()]))
    return math.sqrt(max(0.0, variance - mixed)), freedom
