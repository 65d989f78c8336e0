"""The reducers that carry out a schedule over MPI point-to-point messages.

Short vectors are copied into the reducer's memory. Long ones are sent from the caller's memory, and received where the
caller wants the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from kernels import _native, exact, wires
from kernels.allreduce import accumulate
from kernels.allreduce.accumulate import Accumulation
from kernels.allreduce.collectives import part_of
from kernels.allreduce.execution.expansion import PARTS, Expansion, WordsExpansion, settle, words_of
from kernels.allreduce.execution.handover import Expanded, Merged, Stored
from kernels.allreduce.execution.placement import nodes_of
from kernels.allreduce.execution.program import agreed_gathers_from
from kernels.allreduce.execution.reducer import Reducer, require_blocks
from kernels.allreduce.execution.route import Flight, Ready, Rounding, Route
from kernels.allreduce.local import left_to_right
from kernels.allreduce.operations import COPY, Operation
from kernels.allreduce.reduction import Reduction
from kernels.allreduce.schedule import Schedule
from kernels.environment import guarded
from kernels.guarantees import ChoiceError
from kernels.tree import Tree

COPIED_BYTES = 1 << 12  # up to which a copy costs less than finding the requests for the caller's memory


class ScheduleReducer(Reducer):
    """Combines local contributions left to right, then runs the steps of the schedule.

    A schedule over blocks takes each contribution by itself; with `summed` contributions are the sums of the largest
    subtrees of this rank's blocks. `operation`: the schedule combines by it instead of the
    reduction's. `words`, `width` per element and of another type than `dtype`: the schedule moves and combines them
    instead of elements. Then `load` makes words of contributions, and `store` rounds the words of the total into
    `self._total` (`route.Rounding`).
    """

    def __init__(
        self,
        comm,
        reduction,
        name,
        schedule: Schedule,
        operation: Operation | None = None,
        words: np.ndarray | None = None,
        width: int = 1,
        total: tuple[int, ...] | None = None,
        load: Callable[[int, int], None] | None = None,
        store: Callable[[np.ndarray, np.ndarray], None] | None = None,
        summed: bool = False,
    ):
        super().__init__(comm, reduction, name, total)
        self._operation = operation or reduction.operation
        self._part = _part(reduction, comm.size, comm.rank)
        self._blocks = len(schedule.leaves(comm.rank)) if "owners" in reduction.entry.needs else None
        self._words = self._total if words is None else words
        self.nbytes = self._words.nbytes
        rounding = None
        if load is not None and store is not None:
            gathers = agreed_gathers_from(comm, schedule.program(comm.rank))
            rounding = Rounding(gathers, self._total, load, store)
        wire = wires.get(reduction.wire, self._words.dtype)
        away: frozenset[int] = frozenset()
        if wire is not None:
            nodes = reduction.nodes or nodes_of(comm)
            away = frozenset(peer for peer, node in enumerate(nodes) if node != nodes[comm.rank])
        about = self._operation, self._requests, wire, away, rounding
        self._route = Route(self._comm, schedule, self._words, width, *about)
        self._summed = summed
        if summed:
            trees, self._route = self._route.after_trees()
            self._blocks = len(trees)
        self._copied = words is not None or self.nbytes <= COPIED_BYTES
        # Takes no memory where contributions are never copied into it.
        count = 1 if self._blocks is None else self._blocks
        self._own = np.empty((count, *self._words.shape), self._words.dtype)
        self._home = self._route.at(self._own, self._words) if self._copied else []
        self._at_once = self._route.segments == 1 and not away
        self._flight: Flight | None = None

    @cached_property
    def _ahead(self) -> tuple[list[Tree], np.ndarray, Route]:
        """For contributions that are added one by one: the trees to evaluate meanwhile, memory for their sums, and the
        route that takes these sums."""
        if self._blocks is None:
            return left_to_right(len(self.blocks or ())), self._own, self._route
        trees, route = self._route.after_trees()
        return trees, np.zeros((len(trees), self._words.size), self._words.dtype), route

    def _holds(self) -> Accumulation:
        return accumulate.get("working", self.dtype, self._operation)

    def _make_handover(self):
        if self._summed:
            raise ValueError(f"{self} was planned for sums of subtrees: pass them in one call")
        return Merged(str(self), self.blocks, self.shape, self._holds(), self._ahead[0])

    def _reduce_added(self, added):
        return self._reduce_sums(added.sums)

    def _reduce_sums(self, sums: Sequence[np.ndarray]) -> np.ndarray | None:
        """The total, from the sums of the trees of `_ahead`."""
        trees, own, route = self._ahead
        if not trees and self._blocks is None:
            self._holds().load(np.empty((0, *self.shape), self.dtype), own[0, ...].reshape(-1))
        for words, row in zip(sums, own.reshape(len(own), self._words.size), strict=False):
            np.copyto(row, words)
        return self._run(route.at(own, self._words), self._total)

    def _reduce(self, contributions):
        return self._reduce_into(contributions, self._total)

    def _reduce_into(self, contributions, out):
        return self._run(self._take(contributions, out), out)

    def _run(self, ready: list[Ready], out: np.ndarray) -> np.ndarray | None:
        if not self._at_once:
            Flight(ready, self._calls).advance(wait=True)
        else:  # inlined: a call would show in the time of a short vector
            start, wait, _ = self._calls
            for step in ready:
                for load in step.loads:
                    load()
                if step.requests:
                    start(step.requests)
                    wait(step.requests)
                for combine in step.sums:
                    combine()
        return self._deliver(out)

    def _begin(self, contributions, out):
        # A reduction under way cannot be stopped, so messages never come into the caller's memory.
        self._out = out
        self._flight = Flight(self._take(contributions, self._total), self._calls)

    def _progress(self):
        return self._flight is not None and self._flight.advance(wait=False)

    def _end(self):
        if self._flight is not None:
            self._flight.advance(wait=True)
        self._flight, out = None, self._out
        self._settle()
        if out is not self._total:
            np.copyto(out, self._total)
        return out if self._part is None else self._part(out)

    def _take(self, contributions: np.ndarray, out: np.ndarray) -> list[Ready]:
        """The steps for these contributions, copied or in place; `out` may be the memory of one of them."""
        require_blocks(self, self._blocks, contributions)
        if self._blocks is None and len(contributions) != 1:
            self._operation.fold(contributions, self._own[0, ...])
        elif self._copied or not contributions.flags.c_contiguous:
            np.copyto(self._own, contributions)
        else:
            ready = self._route.known(contributions, out)
            if ready is not None:
                return ready
            if not self._across(contributions, out):
                return self._route.at(contributions, out)
            np.copyto(self._own, contributions)
        return self._home if self._copied else self._route.at(self._own, out)

    def _fitting(self, contributions, out):
        x = super()._fitting(contributions, out)
        require_blocks(self, self._blocks, x)
        return x

    def _across(self, contributions: np.ndarray, out: np.ndarray) -> bool:
        """Whether the total would overlap contributions without being exactly in the place of one."""
        into = _native.address(out) - _native.address(contributions)
        return -out.nbytes < into < contributions.nbytes and into % out.nbytes != 0

    def _settle(self) -> None:
        """Completes the total in the reducer's memory after the schedule has run."""

    def _deliver(self, out: np.ndarray) -> np.ndarray | None:
        self._settle()
        if self._copied and out is not self._total:
            np.copyto(out, self._total)
        return out if self._part is None else self._part(out)

    def _check_ranks(self, total):
        if self._part is None:  # ranks with different parts have nothing to compare
            super()._check_ranks(total)


class AccumulatingReducer(ScheduleReducer):
    """Loads contributions into words, segment by segment, and rounds the words of the total once, on the rank that
    completes them. Under `exact` it then sums again the elements that words cannot hold (`expansion`)."""

    def __init__(self, comm, reduction, name, schedule):
        held = accumulate.get(reduction.accumulation, reduction.dtype, reduction.operation)
        # Zeros: a reduce-scatter also rounds words that are never received.
        words = np.zeros(math.prod(reduction.shape) * held.width, held.travels)
        self._held = held
        self._pending: np.ndarray | None = None  # contributions (k, n) to be loaded
        self._sum: Expansion | None = None  # the sum that these stand for; None: they are the caller's
        about = held.operation, words, held.width
        super().__init__(comm, reduction, name, schedule, *about, load=self._load_part, store=held.store)
        self._has = _has(reduction, comm.size, comm.rank)

    def _holds(self):
        return self._held

    def _make_handover(self):
        about = str(self), self.blocks, self.shape
        return Expanded(*about, self.dtype) if self._held.name == "exact" else super()._make_handover()

    def _reduce_added(self, added):
        return self._reduce_sum(added.sum) if isinstance(added, Expanded) else super()._reduce_added(added)

    def _reduce_sum(self, total: Expansion) -> np.ndarray | None:
        self._pending, self._sum = total.rows(), total
        return self._run(self._home, self._total)

    def _take(self, contributions, out):
        require_blocks(self, self._blocks, contributions)
        self._pending, self._sum = contributions.reshape(len(contributions), math.prod(self.shape)), None
        return self._home

    def _load_part(self, start: int, stop: int) -> None:
        """Loads the words of elements [start, stop) of pending rows, if any; else `add` has made the words."""
        if self._pending is None:
            return
        part = np.ascontiguousarray(self._pending[:, start:stop])
        width = self._held.width
        words = self._own[:, start * width : stop * width]
        if self._sum is not None:  # one row of words holds it, the others zeros
            words[1:] = 0
            if len(words):
                _native.expansion_load(part, width, words[0], marks=True)
        elif self._blocks is None:
            self._held.load(part, words[0])
        else:
            for i, row in enumerate(words):
                self._held.load(part[i : i + 1], row)

    def _settle(self):
        if self._held.name == "exact":
            assert self._pending is not None
            words = words_of(self._pending) if self._sum is None else self._sum.words_of
            settle(self._comm, self._total.reshape(-1), words, self._has)
        self._pending = self._sum = None

    @guarded
    def sum_words(self, words: np.ndarray) -> np.ndarray | None:
        """As `ExactReducer.sum_words`."""
        require_words(self, words)
        if self._blocks == 0 and words.any():
            raise ValueError(f"{self} adds over blocks: this rank has no blocks, so its words must be zeros")
        rows = words.reshape(-1, exact.WORDS)
        total = self._reduce_sum(WordsExpansion(np.empty((PARTS, len(rows))), rows))
        if self.checked:
            self._check_ranks(total)
        return total


class GatheringReducer(ScheduleReducer):
    """Gathers one contribution of each rank into (size, *shape)."""

    def __init__(self, comm, reduction, name, schedule: Schedule):
        super().__init__(comm, reduction, name, schedule, COPY, total=(comm.size, *reduction.shape))

    def _make_handover(self):
        return Stored(str(self), self.blocks, self.shape, self.dtype)

    def _reduce_added(self, added):
        return self._reduce(added.contributions)

    def _take(self, contributions, out):
        if len(contributions) != 1:
            raise ValueError(f"{self} gathers one contribution of each rank, got {len(contributions)}")
        # The contribution is copied to its place in the total, and sent from there.
        out = self._total if self._copied else out
        np.copyto(out[self._comm.rank, ...], contributions[0])
        return self._route.at(out[np.newaxis], out)


def _part(reduction: Reduction, size: int, rank: int) -> Callable[[np.ndarray], np.ndarray | None] | None:
    """A function from the total to the part that this rank's caller gets; None if every rank gets all of it."""
    if reduction.collective == "reduce":
        return lambda total: total if rank == reduction.root else None
    if reduction.collective == "reduce-scatter":
        return lambda total: total.reshape(-1)[slice(*part_of(total.size, size, rank, reduction.bounds))]
    return None


def _has(reduction: Reduction, size: int, rank: int) -> slice | None:
    """The elements of the flat total that a rank has; None if all ranks have all."""
    n = math.prod(reduction.shape)
    if reduction.collective == "reduce":
        return slice(0, n if rank == reduction.root else 0)
    if reduction.collective == "reduce-scatter":
        return slice(*part_of(n, size, rank, reduction.bounds))
    return None


def require_words(reducer: Reducer, words: np.ndarray) -> None:
    """Raises RuntimeError after `free()`, ChoiceError for another accumulation than `exact`, and ValueError for words
    of another shape or type."""
    reducer._require_alive()
    if reducer.reduction.accumulation != "exact":
        raise ChoiceError(f"{reducer}: words of a superaccumulator need accumulation 'exact'")
    if words.shape != (*reducer.shape, exact.WORDS) or words.dtype != np.int64:
        raise ValueError(
            f"{reducer} expects words int64 {(*reducer.shape, exact.WORDS)}, as kernels.exact.zeros makes them, "
            f"got {words.dtype} {words.shape}"
        )
