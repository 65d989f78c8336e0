"""The meaning of "no difference": how probable a difference can still be, and how many runs would show it."""

from __future__ import annotations

import math

from analysis.statistics import CONFIDENCE
from kernels.bits import bound

POWER = 0.8  # the probability with which a test sees `least_difference`
AIM = 0.01  # the probability of a difference for which `power_note` gives the number of runs


def runs_needed(p: float, confidence: float = CONFIDENCE) -> int:
    """The number of runs that show at least one difference with probability `confidence`, if a run differs with
    probability `p`: the smallest n with (1 - p) ** n <= 1 - confidence, 299 for 1 % at 95 %.

    Raises ValueError unless 0 < p <= 1 and 0 < confidence < 1."""
    if not 0 < p <= 1 or not 0 < confidence < 1:
        raise ValueError(f"p = {p}, confidence = {confidence}: must lie within (0, 1)")
    if p == 1:
        return 1
    # Less 1e-9, so that rounding of a whole quotient does not add a run.
    return max(1, math.ceil(math.log1p(-confidence) / math.log1p(-p) - 1e-9))


def least_difference(sd: float, n: int, power: float = POWER, confidence: float = CONFIDENCE) -> float:
    """The smallest mean difference that a paired t test of `n` pairs, whose differences have the standard deviation
    `sd`, sees with probability `power` at `confidence`, by the noncentral t distribution; NaN for fewer than 2 pairs.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct, t

    if n < 2 or not sd >= 0:
        return math.nan
    critical = float(t.ppf((1 + confidence) / 2, n - 1))
    # The other tail of the test is left out: it has less than 1 in 1000 of such differences.
    shift = brentq(lambda shift: nct.sf(critical, n - 1, shift) - power, 0.0, critical + 60.0)
    return shift * sd / math.sqrt(n)


def percent(p: float) -> str:
    """`22 %`, `0.3 %`: `p` with two digits."""
    return f"{100 * p:.2g} %" if p < 0.995 else f"{100 * p:.0f} %"


def bounded(runs: int, confidence: float = CONFIDENCE) -> str:
    """`p < 22 % at 95 %`: the bound on the probability p of a difference per run after `runs` equal runs."""
    return f"p < {percent(bound(runs, confidence))} at {percent(confidence)}"


def unseen(runs: int, confidence: float = CONFIDENCE) -> str:
    """`a difference in up to 22 % of runs could have gone unseen, at 95 % confidence`, of `runs` equal runs."""
    p, sure = percent(bound(runs, confidence)), percent(confidence)
    return f"a difference in up to {p} of runs could have gone unseen, at {sure} confidence"


def power_note(runs: int, confidence: float = CONFIDENCE) -> str:
    """`0 of 12 differ: p < 22 % at 95 %; 299 runs would bound 1 %`, for `runs` runs that had one result.

    p is the probability that a run has another result than this one. Fewer than two runs show nothing, and the
    sentence says so.
    """
    needed = runs_needed(AIM, confidence)
    aim = f"{needed} runs would bound {percent(AIM)}"
    if runs < 2:
        return f"{runs} run{'s' * (runs != 1)}: nothing to compare; {aim}"
    text = f"0 of {runs} differ: {bounded(runs, confidence)}"
    return text if runs >= needed else f"{text}; {aim}"
