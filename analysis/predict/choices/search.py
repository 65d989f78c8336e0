"""Exact search for the fastest choice of one option per item, and for the choices that are not significantly slower.

    seconds = fixed + max over ranks (sum over items of the chosen option's seconds on that rank)

Up to ENUMERATED strategies, the search evaluates all. Beyond that it uses branch and bound: the longest item first,
and it skips a branch whose lower bound is not below the slowest strategy kept. The bound is the maximum of three
times: the load of the busiest rank so far; the mean over ranks with the rest spread evenly; and the least busy rank
plus the largest remaining item, at its best split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from math import prod

import numpy as np

ENUMERATED = 10**5
KEPT = 10
LIMIT = 10**6  # nodes after which branch and bound stops, and is not exact
Z80 = 1.2815515655446004  # standard deviations of an interval of 80 %


@dataclass(frozen=True)
class Assignment:
    """The index of an option for each item, the predicted `seconds`, and their 80 % interval `low` to `high`.
    `apart`: whether it is significantly slower than the best one."""

    options: tuple[int, ...]
    seconds: float
    low: float
    high: float
    apart: bool


@dataclass(frozen=True)
class Assignments:
    """The `best` strategies, fastest first. `looked`: number of strategies evaluated, or of nodes of branch and bound.
    `exact`: false if the search stopped at LIMIT nodes."""

    best: list[Assignment]
    looked: int
    exact: bool


def search(
    costs: Sequence[np.ndarray], fixed: float = 0.0, spread: float = 0.0, apart: float = 0.0, keep: int = KEPT
) -> Assignments:
    """The `keep` fastest strategies; item i has `costs[i]` float64 (options, ranks) in seconds.

    Standard deviations of logarithms: `spread` of a prediction, `apart` of the ratio of two. Raises ValueError for an
    item without options, and for negative or non-finite costs.
    """
    arrays = [np.asarray(of, float) for of in costs]
    for item, of in enumerate(arrays):
        if not of.size or not (np.isfinite(of) & (of >= 0)).all():
            raise ValueError(f"item {item} has no options, or negative or non-finite costs")
    if prod(len(of) for of in arrays) <= ENUMERATED:
        found, looked, exact = _every(arrays, keep)
    else:
        found, looked, exact = _bounded(arrays, keep)
    first = fixed + found[0][0]
    best = []
    for seconds, options in found:
        total = fixed + seconds
        told = bool(np.log(total / first) > 2 * apart) if first > 0 else total > first
        best.append(
            Assignment(options, total, total * np.exp(-Z80 * spread), total * np.exp(Z80 * spread), told)
        )
    return Assignments(best, looked, exact)


def _every(costs: list[np.ndarray], keep: int) -> tuple[list[tuple[float, tuple[int, ...]]], int, bool]:
    loads = np.zeros((1, costs[0].shape[1]))
    for of in costs:
        loads = (loads[:, None] + of[None]).reshape(-1, loads.shape[1])
    seconds = loads.max(axis=1)
    shape = [len(of) for of in costs]
    order = np.lexsort((np.arange(len(seconds)), seconds))[:keep]
    found = [(float(seconds[i]), tuple(int(k) for k in np.unravel_index(i, shape))) for i in order]
    return found, len(seconds), True


def _bounded(costs: list[np.ndarray], keep: int) -> tuple[list[tuple[float, tuple[int, ...]]], int, bool]:
    """Branch and bound, the longest item first."""
    size = costs[0].shape[1]
    order = sorted(range(len(costs)), key=lambda item: (-costs[item].max(axis=1).min(), item))
    # Over the items from each place on: the least total work of all ranks, and the largest item at its best split.
    least = np.cumsum([0.0, *(costs[item].sum(axis=1).min() for item in reversed(order))])[::-1]
    largest = np.maximum.accumulate([0.0, *(costs[item].max(axis=1).min() for item in reversed(order))])[::-1]
    heap: list[tuple[float, tuple[int, ...]]] = []  # negative seconds: the slowest strategy kept is on top

    def offer(seconds: float, chosen: Sequence[int]) -> None:
        if any(options == tuple(chosen) for _, options in heap):
            return
        if len(heap) < keep:
            heappush(heap, (-seconds, tuple(chosen)))
        elif seconds < -heap[0][0]:
            heapreplace(heap, (-seconds, tuple(chosen)))

    load, greedy = np.zeros(size), []
    for item in order:
        option = int(np.argmin((load + costs[item]).max(axis=1)))
        greedy.append(option)
        load = load + costs[item][option]
    offer(float(load.max()), greedy)
    looked = 0
    stack: list[tuple[int, np.ndarray, tuple[int, ...]]] = [(0, np.zeros(size), ())]
    while stack and looked < LIMIT:
        at, load, chosen = stack.pop()
        looked += 1
        bound = max(load.max(), (load.sum() + least[at]) / size, load.min() + largest[at])
        if len(heap) == keep and bound >= -heap[0][0]:
            continue
        if at == len(order):
            offer(float(load.max()), chosen)
            continue
        loads = load + costs[order[at]]
        for option in np.argsort(-loads.max(axis=1), kind="stable").tolist():  # pops the best first
            stack.append((at + 1, loads[option], (*chosen, option)))
    places = np.argsort(order)
    found = [
        (-negative, tuple(options[p] for p in places)) for negative, options in sorted(heap, reverse=True)
    ]
    return found, looked, not stack
