"""Exact search for the fastest choice of one option per item.

    seconds = sum over phases (max over ranks (sum over items of the chosen option's seconds on that rank))

Ranks wait for each other after each phase. Up to ENUMERATED assignments, the search evaluates all. Beyond that it uses
branch and bound: the longest item first, the option with the lowest bound first, and it skips a branch whose lower
bound is not below the slowest assignment kept. Before, changes of one option and exchanges of two improve a first
assignment. Of assignments that take equally long, as those of equal items often do, one is kept. The bound is the
maximum of three times: the load of the busiest ranks so far; the mean over ranks with the rest spread evenly; and the
least busy ranks plus the largest remaining item, at its best split.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappush, heapreplace
from itertools import combinations
from math import prod

import numpy as np

ENUMERATED = 10**5
KEPT = 10
ROUNDING = 1e-9  # relative difference of seconds that are equal
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
    found: list[tuple[float, tuple[int, ...]]] = []
    for i in np.argsort(seconds, kind="stable").tolist():
        if not found or not _alike(float(seconds[i]), found[-1][0]):
            found.append((float(seconds[i]), tuple(int(k) for k in np.unravel_index(i, shape))))
        if len(found) == keep:
            break
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
        if any(_alike(seconds, -negative) for negative, _ in heap):
            return
        if len(heap) < keep:
            heappush(heap, (-seconds, tuple(chosen)))
        elif seconds < -heap[0][0]:
            heapreplace(heap, (-seconds, tuple(chosen)))

    def bounds(at: int, loads: np.ndarray) -> np.ndarray:
        """Of loads (..., phases, ranks) of the items before place `at`."""
        mean, idle = (
            (loads.sum(axis=(-2, -1)) + least[at]) / shape[-1],
            loads.min(axis=-1).sum(axis=-1) + largest[at],
        )
        return np.maximum(np.maximum(seconds_of(loads), mean), idle)

    def by_bound(at: int, loads: np.ndarray) -> list[int]:
        """The options of the item before place `at`, the lowest bound first, then the shortest."""
        return np.lexsort((seconds_of(loads), bounds(at, loads))).tolist()

    load, first = np.zeros(shape), []
    for at, item in enumerate(order, start=1):
        first.append(by_bound(at, load + costs[item])[0])
        load = load + costs[item][first[-1]]
    offer(*_improved([costs[item] for item in order], first))
    looked = 0
    stack: list[tuple[int, np.ndarray, tuple[int, ...]]] = [(0, np.zeros(shape), ())]
    while stack and looked < LIMIT:
        at, load, chosen = stack.pop()
        looked += 1
        if len(heap) == keep and bounds(at, load) >= -heap[0][0]:
            continue
        if at == len(order):
            offer(float(seconds_of(load)), chosen)
            continue
        loads = load + costs[order[at]]
        for option in reversed(by_bound(at + 1, loads)):  # pops the first
            stack.append((at + 1, loads[option], (*chosen, option)))
    places = np.argsort(order)
    found = [
        (-negative, tuple(options[p] for p in places)) for negative, options in sorted(heap, reverse=True)
    ]
    return Assignments(found, looked, min([found[0][0], *(float(bounds(at, load)) for at, load, _ in stack)]))


def _improved(costs: list[np.ndarray], chosen: list[int]) -> tuple[float, tuple[int, ...]]:
    """(seconds, options) after changes of one option, and exchanges of two, as long as these make it shorter."""
    best = np.inf
    load = _load(costs, chosen)
    while (now := float(seconds_of(load))) < best:
        best = now
        for item, of in enumerate(costs):
            rest = load - of[chosen[item]]
            chosen[item] = int(np.argmin(seconds_of(rest + of)))
            load = rest + of[chosen[item]]
        for a, b in combinations(range(len(costs)), 2):
            i, j = chosen[a], chosen[b]
            if i == j or max(i, j) >= min(len(costs[a]), len(costs[b])):
                continue
            other = load - costs[a][i] - costs[b][j] + costs[a][j] + costs[b][i]
            if seconds_of(other) < seconds_of(load):
                load, chosen[a], chosen[b] = other, j, i
    return float(seconds_of(_load(costs, chosen))), tuple(chosen)


def _load(costs: list[np.ndarray], chosen: Sequence[int]) -> np.ndarray:
    return np.sum([of[k] for of, k in zip(costs, chosen, strict=True)], axis=0)


def _alike(seconds: float, other: float) -> bool:
    return abs(seconds - other) <= ROUNDING * other
