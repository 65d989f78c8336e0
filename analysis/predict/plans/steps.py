"""Lays out the step of a program for a replay: seconds of work before each wait, of its messages, and who waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from math import prod
from typing import Protocol

import numpy as np

from analysis.errors import Unreachable
from analysis.predict.plans.devices import DeviceTimes
from analysis.predict.plans.kernels import WorkTimes
from analysis.predict.plans.whole import UNFITTED, Whole
from analysis.predict.simulation.noise import Quiet
from analysis.predict.simulation.replay import Replays, Step, Wait, simulate
from miniapps.untrusted import program as programs
from miniapps.untrusted.program import Program

NOTHING = np.ones(1)


class Messages(Protocol):
    """The costs of messages among some of the ranks of a program."""

    @property
    def extrapolated(self) -> tuple[str, ...]:
        """What was not measured."""

    def cost(self, wait: programs.Wait, size: int, near: int) -> tuple[float, float]:
        """(seconds of the messages of a wait among `size` ranks, of which `near` share a node; seconds of the work for
        them on each rank alone)."""

    def beside(self, wait: programs.Wait, size: int) -> float:
        """The share of these seconds in which the messages pass while ranks work, of a wait that began early."""


@dataclass(frozen=True)
class Laid:
    """A step to be replayed.

    `each` (works,): seconds of a call of each work. `errors` (works, 2): standard deviations of their logarithms,
    common to all sizes of a kernel, and of a size alone; `rest_error`: that of the time between calls. `marks`: the
    works that were not measured. `work`, `rest`, both (2, waits + 1, ranks): seconds of kernels, and between them
    (`_segments`). `costs`, `beside`, both (waits, ranks): seconds of messages for which ranks stop, and of messages
    that pass while ranks work."""

    each: np.ndarray
    errors: np.ndarray
    rest_error: float
    marks: Sequence[str]
    work: np.ndarray
    rest: np.ndarray
    costs: np.ndarray
    beside: np.ndarray
    step: Step

    @property
    def busiest(self) -> float:
        """Seconds of the rank with most to do."""
        return (
            float((self.work + self.rest).sum(axis=(0, 1)).max() + self.costs.sum(axis=0).max())
            + self.exposed
        )

    @property
    def worked(self) -> np.ndarray:
        """(ranks,) seconds of work, and of messages for which a rank stops."""
        return (self.work + self.rest).sum(axis=(0, 1)) + self.costs.sum(axis=0)

    @cached_property
    def quiet(self) -> Replays:
        """One replay without noise."""
        return simulate([self.step], 1, self.work.shape[-1], Quiet(), np.ones(1), np.random.default_rng(0))

    @cached_property
    def hidden(self) -> Replays:
        """The same, if messages beside work took no time."""
        if not self.beside.any():
            return self.quiet
        waits = [replace(wait, beside=None) for wait in self.step.waits]
        step = replace(self.step, waits=waits)
        return simulate([step], 1, self.work.shape[-1], Quiet(), np.ones(1), np.random.default_rng(0))

    @property
    def exposed(self) -> float:
        """By how many seconds messages beside work make the step longer."""
        return max(float(self.quiet.wall[0] - self.hidden.wall[0]), 0.0)


def laid_out(
    program: Program, times: WorkTimes | DeviceTimes, messages: Messages, node: int, fit: Whole = UNFITTED
) -> Laid:
    """The step of a program with the factors of a `fit`; `node`: ranks of a node."""
    each, errors, marks = times.seconds(program.works)
    factor = fit.of_kernels(float(often(program) @ each))
    each = each * factor
    nodes = ordered(program)
    order = {name: k for k, name in enumerate(dict.fromkeys(name for name, *_ in nodes))}
    work, rest = _segments(program, order, each, times)
    costs, beside, local = _costs(program, order, messages, node)
    work[0, :-1] += factor * local  # what a reduction does on each rank alone
    rest, costs, beside = fit.rest * rest, fit.messages * costs, fit.messages * beside
    before, inside = work + rest
    waits = [
        Wait(
            name, costs[k], partners_in(program, name), before[k], inside[k], NOTHING, NOTHING,
            beside[k] if beside[k].any() else None,
        )
        for name, k in order.items()
    ]  # fmt: skip
    step = Step(waits, [(order[name], posts, ended) for name, posts, ended in nodes], before[-1], NOTHING)
    return Laid(each, errors, times.rest_error, marks, work, rest, costs, beside, step)


def ordered(program: Program) -> list[tuple[str, bool, bool]]:
    """(name of a wait, whether ranks post here, whether they end here), in an order that all ranks keep: a message
    between stages is posted by its sender and ended by its receiver. Raises Unreachable if there is none."""
    before: dict[tuple[str, bool, bool], dict[tuple[str, bool, bool], None]] = {}
    for of in program.classes:
        nodes = [(wait.name, wait.posts, wait.ends) for wait in of.waits]
        for node in nodes:
            before.setdefault(node, {})
            if node[1:] == (False, True):
                before[node][node[0], True, False] = None
        for first, second in pairwise(nodes):
            before[second][first] = None
    try:
        return list(TopologicalSorter(before).static_order())
    except CycleError as error:
        names = ", ".join(name for name, *_ in error.args[1][:3])
        raise Unreachable(
            f"{program.title}: ranks wait for each other in a circle ({names}); save the plan again"
        ) from None


def _segments(
    program: Program, order: Mapping[str, int], each: np.ndarray, times: WorkTimes | DeviceTimes
) -> tuple[np.ndarray, np.ndarray]:
    """(2, waits + 1, ranks) seconds of kernels, of which a call takes `each` (works,), and of all between them: before
    a rank posts in each wait, and at the end; and before it ends a wait in which it, or another rank, posted."""
    work, rest = (np.zeros((2, len(order) + 1, program.size)) for _ in range(2))
    for of in program.classes:
        ranks = np.array(of.ranks)[None]
        halves = np.array([*(not wait.posts for wait in of.waits), False], int)[:, None]
        places = np.array([*(order[wait.name] for wait in of.waits), len(order)])[:, None]
        calls = [sum(each[number] * count for number, count in s.calls) for s in of.segments]
        work[halves, places, ranks] = np.array(calls)[:, None]
        rest[halves, places, ranks] = times.rest(np.array([s.rest for s in of.segments]))[:, None]
    return work, rest


def _costs(
    program: Program, order: Mapping[str, int], messages: Messages, node: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """((waits, ranks) seconds in which ranks do nothing but messages, in which messages pass while ranks work, and of
    the work for them on each rank alone); `node`: ranks of a node."""
    costs, beside, local = (np.zeros((len(order), program.size)) for _ in range(3))
    known: dict[tuple, tuple[float, float, float]] = {}
    for of in program.classes:
        ranks = list(of.ranks)
        for wait in of.waits:
            if not wait.ends:
                continue
            key = (wait.kind, wait.along, wait.label, wait.elements, wait.itemsize, wait.contributions, wait.scatters,
                   wait.nbytes, len(wait.offsets), wait.part)  # fmt: skip
            if key not in known:
                size = 2 if wait.kind == "receive" else prod(program.mesh[axis] for axis in wait.along)
                whole, alone = messages.cost(wait, size, min(size, _near(program, wait.along, node)))
                share = messages.beside(wait, size) if wait.part == "finish" else 0.0
                known[key] = (1.0 - share) * whole, share * whole, alone
            at = order[wait.name]
            costs[at, ranks], beside[at, ranks], local[at, ranks] = known[key]
    return costs, beside, local


def _near(program: Program, along: Sequence[str], node: int) -> int:
    """How many of the ranks that differ from rank 0 `along` these axes are on its node, the first `node` ranks."""
    sizes = [size if name in along else 1 for name, size in program.mesh.items()]
    places = np.unravel_index(np.arange(min(node, program.size)), list(program.mesh.values()))
    return int(np.all([place < size for place, size in zip(places, sizes, strict=True)], axis=0).sum())


def partners_in(program: Program, name: str) -> np.ndarray | None:
    """(ranks, most) the ranks for which each rank waits in the wait `name`; None: all. A rank that takes no part, or
    does not wait, has itself."""
    sizes = list(program.mesh.values())
    places = np.stack(np.unravel_index(np.arange(program.size), sizes), axis=1)
    parts = [
        (np.array(of.ranks), wait)
        for of in program.classes
        for wait in of.waits
        if wait.name == name and wait.part != "finish"
    ]
    first = parts[0][1]
    if first.kind == "reduction":
        whole = prod(program.mesh[axis] for axis in first.along) == program.size
        if whole and sum(len(ranks) for ranks, _ in parts) == program.size:
            return None
        along = np.array([axis in first.along for axis in program.mesh])
        grid = [np.arange(n) if moves else [0] for n, moves in zip(sizes, along, strict=True)]
        steps = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, len(sizes))
        partners = np.tile(np.arange(program.size)[:, None], (1, len(steps)))
        for ranks, _ in parts:
            there = np.where(along, steps[None], places[ranks][:, None])
            partners[ranks] = np.ravel_multi_index(tuple(np.moveaxis(there, -1, 0)), sizes)
        return partners
    width = 1 + max(len(wait.offsets) for _, wait in parts)
    partners = np.tile(np.arange(program.size)[:, None], (1, width))
    for ranks, wait in parts:
        for j, offset in enumerate(wait.offsets if wait.kind != "send" else ()):
            # A rank of this class whose neighbour is elsewhere wraps around.
            partners[ranks, j] = np.ravel_multi_index(tuple(((places[ranks] + offset) % sizes).T), sizes)
    return partners


def often(program: Program) -> np.ndarray:
    """(works,) calls of each work in a step, mean over ranks."""
    calls = np.zeros(len(program.works))
    for of in program.classes:
        for segment in of.segments:
            for number, count in segment.calls:
                calls[number] += count * len(of.ranks) / program.size
    return calls
