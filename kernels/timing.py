"""How long calls take: times of a few, calls in turn, their median, and the interval of it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from math import comb
from typing import Any, TypeVar

from kernels.progress import Progress

T = TypeVar("T")

FEWEST = 6  # calls: the fewest whose range holds the median of all calls with 95 %
MOST = 31
ENOUGH_S = 0.1  # spent on the calls of one thing, where FEWEST take less
GIVE_UP_S = 30.0  # after which no more calls are made, even if there are fewer than FEWEST


def timed(call: Callable[[], Any]) -> tuple[Any, list[float]]:
    """What the first call returns, and the times of the others in seconds: the first also loads libraries and starts
    threads. 6 to 31 times, by how long they take; fewer, at least one, where that would be longer than 30 s."""
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
    """Call every function of `variants` once per round, each round in another order; {name: results}.

    Neighbours in time share the machine's mood, so ratios are taken within a round. The first round warms up
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
    """The median of a sample, and the order statistics between which the median of its distribution lies with at least
    95 %, whatever the distribution (Conover, Practical Nonparametric Statistics, section 3.2); None for these where
    there are fewer than 6. ValueError where there is nothing."""
    if not seconds:
        raise ValueError("no times: nothing has a median")
    ordered, n = sorted(seconds), len(seconds)
    below, place = 1, 0  # how many of 2**n outcomes have at most `place` values below the median
    while 40 * below < 2**n:  # less than 2.5 %
        place += 1
        below += comb(n, place)
    median = statistics.median(ordered)
    return (median, ordered[place - 1], ordered[n - place]) if place else (median, None, None)
