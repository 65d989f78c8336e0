"""Times calls: repeated calls of one function, functions in turn, and the median with its interval."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Any, TypeVar

from kernels.progress import Progress

T = TypeVar("T")

FEWEST = 6  # calls: the fewest whose range contains the median of the distribution with 95 %
MOST = 31
ENOUGH_S = 0.1  # timed calls go on for this long, where FEWEST take less
GIVE_UP_S = 30.0  # no call starts after this time, even if there are fewer than FEWEST


def timed(call: Callable[[], Any]) -> tuple[Any, list[float]]:
    """Returns the result of a first call, and the times of further calls in seconds. The first call is not timed: it
    also loads libraries and starts threads.

    6 to 31 calls are timed, depending on their duration; at least one, where 6 would take longer than 30 s."""
    value = call()
    seconds: list[float] = []
    begun = time.perf_counter()
    while True:
        begin = time.perf_counter()
        call()
        end = time.perf_counter()
        seconds.append(end - begin)
        spent, calls = end - begun, len(seconds)
        if calls == MOST or spent > GIVE_UP_S or (calls >= FEWEST and spent > ENOUGH_S):
            return value, seconds


def in_turn(
    variants: Mapping[str, Callable[[], T]], rounds: int, quiet: bool = False, what: str = "benchmark"
) -> dict[str, list[T]]:
    """Calls every function of `variants` once per round, each round starting with another; returns {name: results}.

    Calls close in time see the same load of the machine, so compute ratios within a round. The first round warms up
    and does not count. Unless `quiet`, shows progress of `what` on stderr, between the calls.
    """
    results: dict[str, list[T]] = {name: [] for name in variants}
    names = list(variants)
    progress, calls = Progress(what, quiet=quiet), (rounds + 1) * len(names)
    for k in range(rounds + 1):
        for i, name in enumerate(names[k % len(names) :] + names[: k % len(names)]):
            progress.show((k * len(names) + i) / calls, f"round {k} of {rounds}, {name}")
            value = variants[name]()
            if k:
                results[name].append(value)
    progress.clear()
    return results


def median_interval(seconds: Sequence[float]) -> tuple[float, float, float] | tuple[float, None, None]:
    """The median of a sample, and the ends of an interval for the median of its distribution, of at least 95 %.

    The ends are order statistics; they hold for every distribution (Conover, Practical Nonparametric Statistics,
    section 3.2). They are None for fewer than 6 values. Raises ValueError for an empty sample."""
    if not seconds:
        raise ValueError("no times: nothing has a median")
    ordered, n = sorted(seconds), len(seconds)
    below, place = 1, 0  # how many of 2**n outcomes have at most `place` values below the median
    while 40 * below < 2**n:  # less than 2.5 %
        place += 1
        below += comb(n, place)
    median = statistics.median(ordered)
    return (median, ordered[place - 1], ordered[n - place]) if place else (median, None, None)
