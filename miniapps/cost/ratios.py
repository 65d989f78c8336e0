"""The ratio of times that paired launches show, and the reasons to withhold it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from kernels.timing import FEWEST, median_interval
from miniapps.cost.launches import Launch

CROWDED = 0.25  # missing processors from which on launches count as sharing them
LEAST_USED = 0.1  # CPU time over wall time; below it the command works on other machines, or waits
MOST_PAIRS = 1000


@dataclass(frozen=True)
class Price:
    """The ratio of B to A by one clock.

    `why`: the reason to withhold the ratio, and what to do; empty if it is shown. `low` to `high` is the 95 % interval
    of the median of all ratios; None if there are too few pairs."""

    clock: str
    a_s: float
    b_s: float
    ratio: float | None
    low: float | None
    high: float | None
    why: str = ""


def prices(a: Sequence[Launch], b: Sequence[Launch], ranks: int, cores: int) -> list[Price]:
    """The prices by CPU time and by wall time, from paired launches with `ranks` processes each on `cores`."""
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
            f"B takes {low:.3g} to {high:.3g} times as long as A (95 %), which does not distinguish them: "
            f"{_more(len(ratios), ratio, low, high)}"
        )
    return Price(clock, *medians, ratio, low, high, why)


def _more(pairs: int, ratio: float, low: float, high: float) -> str:
    """How many pairs would distinguish this ratio from 1: the interval shrinks with the root of their number."""
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
            f"{ranks} ranks share {cores} core{'s' * (cores > 1)}, so wall times include waiting for a core: launch "
            f"fewer ranks, or on {ranks} cores"
        )
    others = statistics.median(each.others or 0.0 for each in launches)
    if ranks + others > cores + CROWDED:
        return (
            f"other programs used {others:.1f} of {cores} cores, too many for {ranks} rank{'s' * (ranks > 1)} "
            "beside them: launch on a machine that nobody else uses"
        )
    return ""
