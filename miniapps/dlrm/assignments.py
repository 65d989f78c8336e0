"""Exact search for the fastest choice of one option per item.

    seconds = sum over phases (max over ranks (sum over items of the chosen option's seconds on that rank))

Ranks wait for each other after each phase. Up to ENUMERATED assignments, the search evaluates all. Beyond that it uses
branch and bound: the longest item first, and it skips a branch whose lower bound is not below the slowest assignment
kept. The bound is the maximum of three times: the load of the busiest ranks so far; the mean over ranks with the rest
spread evenly; and the least busy ranks plus the largest remaining item, at its best split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from math import prod

import numpy as np

ENUMERATED = 10**5
KEPT = 10
LIMIT = 10**5  # nodes after which branch and bound stops, and is not exact


@dataclass(frozen=True)
class Assignments:
    """`best`: (seconds, the index of an option for each item), fastest first. `looked`: number of assignments
    evaluated, or of nodes of branch and bound. `least`: no assignment takes fewer seconds; those of the first, unless
    the search stopped at LIMIT nodes."""

    best: list[tuple[float, tuple[int, ...]]]
    looked: int
    least: float

    @property
    def exact(self) -> bool:
        """Whether the first is proven to be the fastest."""
        return self.least >= self.best[0][0]


def search(costs: Sequence[np.ndarray], keep: int = KEPT) -> Assignments:
    """The `keep` fastest assignments; item i has `costs[i]` float64 (options, phases, ranks) in seconds. Raises
    ValueError for an item without options, and for negative or non-finite costs."""
    arrays = [np.asarray(of, float) for of in costs]
    for item, of in enumerate(arrays):
        if not of.size or not (np.isfinite(of) & (of >= 0)).all():
            raise ValueError(f"item {item} has no options, or negative or non-finite costs")
    few = prod(len(of) for of in arrays) <= ENUMERATED
    return _every(arrays, keep) if few else _bounded(arrays, keep)


def seconds_of(loads: np.ndarray) -> np.ndarray:
    """Seconds of loads (..., phases, ranks)."""
    return loads.max(axis=-1).sum(axis=-1)


def _every(costs: list[np.ndarray], keep: int) -> Assignments:
    loads = np.zeros((1, *costs[0].shape[1:]))
    for of in costs:
        loads = (loads[:, None] + of[None]).reshape(-1, *loads.shape[1:])
    seconds = seconds_of(loads)
    shape = [len(of) for of in costs]
    order = np.lexsort((np.arange(len(seconds)), seconds))[:keep]
    found = [(float(seconds[i]), tuple(int(k) for k in np.unravel_index(i, shape))) for i in order]
    return Assignments(found, len(seconds), found[0][0])


def _bounded(costs: list[np.ndarray], keep: int) -> Assignments:
    """Branch and bound, the longest item first."""
    shape = costs[0].shape[1:]
    order = sorted(range(len(costs)), key=lambda item: (-seconds_of(costs[item]).min(), item))
    backwards = [costs[item] for item in reversed(order)]
    # Over the items from each place on: the least total work of all ranks, and the largest item at its best split.
    least = np.cumsum([0.0, *(of.sum(axis=(1, 2)).min() for of in backwards)])[::-1]
    largest = np.maximum.accumulate([0.0, *(seconds_of(of).min() for of in backwards)])[::-1]
    heap: list[tuple[float, tuple[int, ...]]] = []  # negative seconds: the slowest assignment kept is on top

    def offer(seconds: float, chosen: Sequence[int]) -> None:
        if any(options == tuple(chosen) for _, options in heap):
            return
        if len(heap) < keep:
            heappush(heap, (-seconds, tuple(chosen)))
        elif seconds < -heap[0][0]:
            heapreplace(heap, (-seconds, tuple(chosen)))

    def bound(at: int, load: np.ndarray) -> float:
        mean, idle = (load.sum() + least[at]) / shape[-1], load.min(axis=-1).sum() + largest[at]
        return float(max(seconds_of(load), mean, idle))

    load, greedy = np.zeros(shape), []
    for item in order:
        option = int(np.argmin(seconds_of(load + costs[item])))
        greedy.append(option)
        load = load + costs[item][option]
    offer(float(seconds_of(load)), greedy)
    looked = 0
    stack: list[tuple[int, np.ndarray, tuple[int, ...]]] = [(0, np.zeros(shape), ())]
    while stack and looked < LIMIT:
        at, load, chosen = stack.pop()
        looked += 1
        if len(heap) == keep and bound(at, load) >= -heap[0][0]:
            continue
        if at == len(order):
            offer(float(seconds_of(load)), chosen)
            continue
        loads = load + costs[order[at]]
        for option in np.argsort(-seconds_of(loads), kind="stable").tolist():  # pops the best first
            stack.append((at + 1, loads[option], (*chosen, option)))
    places = np.argsort(order)
    found = [
        (-negative, tuple(options[p] for p in places)) for negative, options in sorted(heap, reverse=True)
    ]
    return Assignments(found, looked, min([found[0][0], *(bound(at, load) for at, load, _ in stack)]))
