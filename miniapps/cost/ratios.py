"""What paired launches show of a ratio of times, and when they show nothing."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.timing import FEWEST, median_interval
from miniapps.cost.launches import Launch

CROWDED = 0.25  # processors too few at which launches count as having shared them
LEAST_USED = 0.1  # CPU time over wall time, below which the processors' time is spent elsewhere
MOST_PAIRS = 1000


@dataclass(frozen=True)
class Price:
    """B over A by one clock. `why`: why the ratio is not shown, and what to do; empty where it is. `low` to `high`
    holds the median of all ratios with 95 %, and is None where there are too few pairs."""

    clock: str
    a_s: float
    b_s: float
    ratio: float | None
    low: float | None
    high: float | None
    why: str = ""


def prices(a: Sequence[Launch], b: Sequence[Launch], ranks: int, cores: int) -> list[Price]:
    """CPU time and wall time of B over A, by launches in pairs on `cores`, with `ranks` processes each."""
    cpu = _price("CPU time", [each.cpu for each in a], [each.cpu for each in b], _unused([*a, *b]))
    wall = _price(
        "wall time", [each.wall for each in a], [each.wall for each in b], _shared([*a, *b], ranks, cores)
    )
    return [cpu, wall]


def _price(clock: str, a: list[float], b: list[float], withheld: str) -> Price:
    medians = statistics.median(a), statistics.median(b)
    if min(*a, *b) <= 0:
        why = "a launch took no time by this clock: give it more work, such as more steps"
        return Price(clock, *medians, None, None, None, why)
    ratios = [after / before for before, after in zip(a, b, strict=True)]
    ratio, low, high = median_interval(ratios)
    why = withheld
    if not why and (low is None or high is None):
        why = f"{len(ratios)} pair{'s' * (len(ratios) > 1)} cannot show it: launch six times or more (--pairs {FEWEST})"
    elif not why and low is not None and high is not None and low <= 1.0 <= high:
        why = (
            f"B takes {low:.3g} to {high:.3g} times as long as A (95 %), which does not tell them apart: "
            f"{_more(len(ratios), ratio, low, high)}"
        )
    return Price(clock, *medians, ratio, low, high, why)


def _more(pairs: int, ratio: float, low: float, high: float) -> str:
    """How many pairs would tell this ratio from 1: an interval shrinks with the root of their number."""
    half, effect = (math.log(high) - math.log(low)) / 2, abs(math.log(ratio))
    needed = pairs * (half / effect) ** 2 * 1.5 if effect > 0 else math.inf
    if needed > MOST_PAIRS:
        return "if they differ, it is by less than that"
    return f"launch about {max(pairs + 2, math.ceil(needed))} pairs (--pairs), or give each launch more work"


def _unused(launches: Sequence[Launch]) -> str:
    if statistics.median(each.cpu / each.wall for each in launches if each.wall > 0) >= LEAST_USED:
        return ""
    return (
        "the command used hardly any processor here: its ranks run on other machines, or it waits; take the wall time, "
        "or start it where its ranks run"
    )


def _shared(launches: Sequence[Launch], ranks: int, cores: int) -> str:
    if ranks > cores:
        return (
            f"{ranks} ranks share {cores} core{'s' * (cores > 1)}, and wall times tell who waits for whom: launch "
            f"fewer ranks, or on {ranks} cores"
        )
    others = statistics.median(each.others or 0.0 for each in launches)
    if ranks + others > cores + CROWDED:
        return (
            f"other programs used {others:.1f} of {cores} cores, too many for {ranks} rank{'s' * (ranks > 1)} "
            "beside them: launch on a machine that nobody else uses"
        )
    return ""
