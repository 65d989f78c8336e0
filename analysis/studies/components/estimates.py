"""The variance components of every outcome of every problem: run-to-run variance, and that of the algorithm."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from analysis.load.frames import Frames
from analysis.power import power_note
from analysis.studies.components.bootstrap import RESAMPLES, bca, replicates
from analysis.studies.components.design import Design, design
from analysis.studies.components.henderson import estimate, ranks, rows_of
from analysis.studies.components.observations import PLURAL, RANDOM, REPEAT, Observations, observations
from analysis.studies.contract import frame
from kernels.as_json import Column

RUN_TO_RUN, ALGORITHM = "run-to-run", "algorithm"
FEWEST = 8  # fewest units to draw from for an interval
FEWEST_IN = 4  # fewest of them within each level of the outer factors
SEED = 1

COMPONENTS = {
    "app": Column("str"), "problem": Column("str", "options that distinguish it from the app's other problems"),
    "outcome": Column("str"), "scale": Column("str", "`log` of times, `relative` deviation, or `absolute`"),
    "step": Column("int64", "of the outcome, -1 for the wall time"),
    "observations": Column("int64", "complete runs with a number"), "left_out": Column("int64", "without a number"),
    "kind": Column("str", "`run-to-run` or `algorithm`"), "factor": Column("str"), "levels": Column("int64"),
    "df": Column("int64", "degrees of freedom"), "variance": Column("float64"),
    "low": Column("float64", "95 % interval by bootstrap"), "high": Column("float64", "95 % interval by bootstrap"),
    "negative": Column("bool", "the estimate was below 0"),
    "share": Column("float64", "`run-to-run`: of their sum; `algorithm`: of the sum of all"),
    "share_low": Column("float64"), "share_high": Column("float64"),
    "drawn": Column("str", "the factor whose levels the bootstrap draws"),
    "units": Column("int64", "number of its levels"), "resamples": Column("int64"),
    "refused": Column("str", "why there is no interval"), "alias": Column("str", "factors that it is confounded with"),
    "remark": Column("str", "limits of the estimate"),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """The resampling for intervals: it draws the `units` levels of the factor `by`. `unit` and `stratum`: codes per
    observation of the units, and of the strata within which they are drawn. `by` is empty if nothing can be drawn, for
    the reason `why`. `above`: outer factors, which are not drawn."""

    by: str
    units: int
    unit: np.ndarray
    stratum: np.ndarray
    above: list[str]
    why: str


def components(frames: Frames, resamples: int = RESAMPLES) -> pd.DataFrame:
    """One row per problem, outcome and factor; columns COMPONENTS.

    observations   complete (run, repeat) with a number; `left_out` have none (NaN, infinite, not recorded)
    kind, factor   RUN_TO_RUN: allocation, node, launch, repeat (within a launch: the residual); ALGORITHM: guarantee,
                   ordering, ranks and every other factor of the method that varies, and their combination
    levels, df     number of levels; the rank that the factor adds to the model (`design`)
    variance       of the logarithm of the time, or of the relative deviation; for a factor of the algorithm the
                   variance among its levels. Estimates below 0 become 0, and are `negative`; NaN without an estimate,
                   and `remark` gives the reason
    low, high      95 % interval by `resamples` cluster bootstraps (BCa; plain percentiles for a component below 0)
                   over `units` levels of the factor `drawn`; NaN for the reason `refused`
    share          RUN_TO_RUN: of the sum of these; ALGORITHM: of the sum of all
    alias          factors that this one is confounded with: it has no estimate of its own
    """
    rows = [row for observed in observations(frames) for row in of_problem(observed, resamples)]
    return frame(rows, COMPONENTS)


def of_problem(observed: Observations, resamples: int = RESAMPLES) -> list[dict]:
    """The rows of `components` for one problem."""
    rows: dict[str, list[dict]] = {}
    y = observed.outcomes.to_numpy(np.float64)
    known = np.isfinite(y)
    together: dict[bytes, list[int]] = {}
    for k in range(y.shape[1]):  # outcomes known for the same runs share a design and its resamples
        together.setdefault(known[:, k].tobytes(), []).append(k)
    for same in together.values():
        some = known[:, same[0]]
        for k, own in zip(same, _of_outcomes(observed, some, y[some][:, same], resamples), strict=True):
            name = observed.outcomes.columns[k]
            head = {
                "app": observed.app, "problem": observed.problem, "outcome": name, "scale": observed.scale[name],
                "step": observed.steps.get(name, -1), "observations": int(some.sum()), "left_out": int((~some).sum()),
            }  # fmt: skip
            rows[name] = [head | row for row in own]
    return [row for name in observed.outcomes for row in rows[name]]


def _of_outcomes(given: Observations, some: np.ndarray, y: np.ndarray, resamples: int) -> list[list[dict]]:
    """The rows for each column of `y` (n, outcomes), with the numbers of the runs `some`."""
    n = len(y)
    if n < 2:
        return [[_nothing(f"{n} observation{'s' * (n != 1)}, 2 are needed")] for _ in y.T]
    levels = given.levels[some].reset_index(drop=True)
    plan = design(levels, given.treatments)
    drawn = _drawn(plan, levels, given.treatments)
    equal = np.ptp(y, axis=0) == 0
    factors = (*plan.factors, REPEAT)
    chance = np.array([name in (*RANDOM, REPEAT) for name in factors])
    # Random components are estimated from y minus the first y of the same algorithm: equal bits leave exactly 0, which
    # a projection would not.
    beside = y - y[_first_alike(plan.codes[:, ~chance[:-1]])]
    scale, own_scale = _size(y), _size(beside)
    both = np.concatenate([(y - y.mean(axis=0)) / scale, beside / own_scale], axis=1)
    full = rows_of(np.column_stack([plan.codes, drawn.unit, drawn.stratum]), both)
    rows = replace(full, codes=full.codes[:, : len(plan.factors)])

    def joined(variance: np.ndarray) -> np.ndarray:
        of_all, of_chance = np.split(variance, 2, axis=1)
        return np.where(chance[:, None], of_chance * (own_scale / scale) ** 2, of_all)

    def statistic(variance: np.ndarray) -> np.ndarray:
        variance = joined(variance)
        return np.stack([variance, _shares(variance, chance)])

    estimated = estimate(rows)
    variance = joined(estimated.variance)
    value = statistic(estimated.variance)
    low, high = np.full_like(value, np.nan), np.full_like(value, np.nan)
    if drawn.by:
        resampled = replicates(rows, full.codes[:, -2], full.codes[:, -1], statistic, SEED, resamples)
        # The correction does not apply to an estimate at or below 0.
        low, high = bca(value, *resampled, corrected=np.stack([variance > 0] * 2))
        for ends in (low, high):
            ends[0, [name in drawn.above for name in factors]] = np.nan
            if drawn.above:  # the sum of a share includes components that were not drawn
                ends[1] = np.nan
    # If even the high end is at or below 0, the interval says no more than the estimate.
    beyond = high <= 0
    low, high = np.where(beyond, np.nan, low), np.where(beyond, np.nan, high)
    size = np.stack([scale**2, np.ones_like(scale)])[
        :, None
    ]  # variances back in their own unit; shares have none
    value, low, high = (np.maximum(part, 0.0) * size for part in (value, low, high))
    result = []
    for k in range(y.shape[1]):
        if equal[k]:
            result.append([_nothing(f"no difference: {power_note(n)}")])
            continue
        own = [
            {
                "kind": RUN_TO_RUN if chance[i] else ALGORITHM, "factor": name, "levels": plan.levels.get(name, n),
                "df": round(estimated.df[i]), "variance": value[0, i, k], "low": low[0, i, k], "high": high[0, i, k],
                "negative": bool(variance[i, k] < 0), "share": value[1, i, k], "share_low": low[1, i, k],
                "share_high": high[1, i, k], "drawn": drawn.by, "units": drawn.units,
                "resamples": resamples if drawn.by else 0, "alias": "",
                "refused": _refused(plan, drawn, name, low[0, i, k], beyond[0, i, k]),
                "remark": _remark(plan, name, variance[i, k]),
            }
            for i, name in enumerate(factors)
        ]  # fmt: skip
        result.append([*own, *_unknown(plan)])
    return result


def _first_alike(codes: np.ndarray) -> np.ndarray:
    """For each row of `codes` (n, factors of the algorithm), the first row with the same levels, if the factors
    explain every combination; else the first row of all."""
    combinations, first, place = np.unique(codes, axis=0, return_index=True, return_inverse=True)
    if codes.shape[1] and 1 + ranks(codes).sum() < len(combinations):
        return np.zeros(len(codes), int)
    return first[place.ravel()] if codes.shape[1] else np.zeros(len(codes), int)


def _size(y: np.ndarray) -> np.ndarray:
    """The standard deviation of each column; 1 if all its numbers are equal."""
    return np.where(np.ptp(y, axis=0) == 0, 1.0, y.std(axis=0))


def _shares(variance: np.ndarray, chance: np.ndarray) -> np.ndarray:
    """The share of each component (first axis): `chance` in the sum of chance, others in the total; NaN for sum 0."""
    positive = np.maximum(variance, 0.0)
    with np.errstate(all="ignore"):
        return np.where(
            chance[:, None],
            positive / np.nansum(positive[chance], axis=0),
            positive / np.nansum(positive, axis=0),
        )


def _drawn(plan: Design, levels: pd.DataFrame, treatments: tuple[str, ...]) -> Drawn:
    """The resampling over the outermost random factor with enough levels."""
    chance = sorted((name for name in RANDOM if plan.levels[name] > 1), key=plan.levels.__getitem__)
    for i, name in enumerate(chance):
        if plan.levels[name] < FEWEST:
            continue
        unit = pd.factorize(levels[name])[0]
        outer = [
            key for key in (*treatments, *chance[:i]) if (levels.groupby(name)[key].nunique() == 1).all()
        ]
        stratum = (
            levels.groupby(outer, sort=False).ngroup().to_numpy() if outer else np.zeros(len(levels), int)
        )
        inside = pd.Series(unit).groupby(stratum).nunique()
        if (inside >= FEWEST_IN).all():
            return Drawn(
                name, plan.levels[name], unit, stratum, [key for key in chance[:i] if key in plan.factors], ""
            )
    counts = [f"{plan.levels[name]} {name if plan.levels[name] == 1 else PLURAL[name]}" for name in RANDOM]
    why = f"{', '.join(counts)}; an interval needs {FEWEST} of one kind, {FEWEST_IN} within each outer one"
    nothing = np.zeros(len(levels), int)
    return Drawn("", 0, nothing, nothing, [], why)


def _refused(plan: Design, drawn: Drawn, name: str, low: float, below: bool) -> str:
    """Why the component of `name` has no interval; empty if it has one."""
    if not drawn.by:
        return drawn.why
    if name in drawn.above:
        return f"{plan.levels[name]} {PLURAL[name]}, {FEWEST} are needed"
    if below:
        return "below 0 in nearly all resamples"
    return "too many resamples lost a level of it" if np.isnan(low) else ""


def _remark(plan: Design, name: str, raw: float) -> str:
    words = [f"includes {', '.join(held)}"] if (held := plan.holds.get(name)) else []
    if raw == 0:
        words.append("no variance")
    if np.isnan(raw):
        words.append("no degree of freedom is left for repeats")
    elif raw < 0:
        words.append("estimate below 0")
    return "; ".join(words)


def _unknown(plan: Design) -> list[dict]:
    """Rows of the factors without a component of their own: confounded factors, and random ones with one level."""
    rows = [
        _nothing(f"not separable from {other}")
        | {"factor": name, "levels": plan.levels[name], "alias": other}
        for name, other in plan.alias.items()
    ]
    rows += [
        _nothing(f"one {name} only: these numbers do not contain its variance")
        | {"factor": name, "levels": 1}
        for name in plan.constant
        if name in RANDOM
    ]
    return [row | {"kind": RUN_TO_RUN if row["factor"] in RANDOM else ALGORITHM} for row in rows]


def _nothing(remark: str) -> dict:
    """A row without a component, with the reason as `remark`."""
    return {
        "kind": "", "factor": "", "levels": 0, "df": 0, "negative": False, "drawn": "", "units": 0, "resamples": 0,
        "refused": "", "alias": "", "remark": remark,
        **dict.fromkeys(("variance", "low", "high", "share", "share_low", "share_high"), np.nan),
    }  # fmt: skip
