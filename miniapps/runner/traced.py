"""Reductions in the trace: a description of each, its number of calls, and an event for every call."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from miniapps.trace import Tracer
from miniapps.trace.records import PACKING
from miniapps.trace.schema import COLLECTIVE

if TYPE_CHECKING:
    from kernels.allreduce.execution import reducer as planned  # which loads MPI


class Reducer:
    """A reduction of `kernels.allreduce.plan` that records an event `COLLECTIVE.NAME`, such as `allreduce.dots1`, and
    counts its calls.

    `reducer(contributions)`: (k, *shape) of this rank's k blocks -> (*shape,), valid until the next call.
    `reducer.start(contributions)`, `reducer.finish()`: the same without blocking; one event, from the beginning of
    `start` to the end of `finish`. `reducer.add(block, contribution)` for each own block, `reducer.finish()`: the same
    with contributions one by one; one event, of `finish`.
    """

    __slots__ = (
        "_begun", "_calls", "_clock", "_event", "_inner", "_name", "guarantee", "name", "nbytes", "reduction", "region",
    )  # fmt: skip

    def __init__(self, name: str, inner: Any, tracer: Tracer):
        self.name, self._inner, self._calls = name, inner, 0
        self.reduction, self.guarantee, self.nbytes = inner.reduction, inner.guarantee, inner.nbytes
        self.region = f"{self.reduction.collective}.{name}"
        self._name = tracer.name(self.region, COLLECTIVE)
        self._clock, self._event, self._begun = tracer.clock, tracer.event, 0

    def __call__(self, contributions: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        start = self._clock()
        total = self._inner(contributions, out)
        self._calls += 1
        self._event(self._name, start, self.nbytes)
        return total

    def start(self, contributions: np.ndarray, out: np.ndarray | None = None) -> None:
        """Start a sum; do not change `contributions` and `out` before `finish`."""
        self._begun = self._clock()
        self._inner.start(contributions, out)

    def progress(self) -> bool:
        """Advance the started sum without waiting; returns whether `finish()` would return at once."""
        return self._inner.progress()

    def add(self, block: int, contribution: np.ndarray) -> None:
        """Add the contribution (*shape) of one of this rank's blocks; call `finish()` after the last."""
        self._inner.add(block, contribution)

    def finish(self) -> np.ndarray:
        """Returns the total of the started or added contributions."""
        start, self._begun = self._begun or self._clock(), 0
        total = self._inner.finish()
        self._calls += 1
        self._event(self._name, start, self.nbytes)
        return total

    def sum_words(self, words: np.ndarray) -> np.ndarray:
        """The sum of superaccumulators, int64 (*shape, WORDS), rounded once; in accumulation `exact` only."""
        start = self._clock()
        total = self._inner.sum_words(words)
        self._calls += 1
        self._event(self._name, start, self.nbytes)
        return total

    def lost(self) -> tuple[np.ndarray, np.ndarray]:
        """The encoding errors that feedback holds, of contributions and of the total. Collective."""
        return self._inner.lost()

    def restore_lost(self, contributions: np.ndarray, total: np.ndarray) -> None:
        """Restore the encoding errors that `lost` returned."""
        self._inner.restore_lost(contributions, total)

    def drain_orders(self) -> list[np.ndarray]:
        """The orders in which contributions were added since the last drain (rank 0, `arrival` only)."""
        return self._inner.drain_orders()

    def drain_calls(self) -> int:
        """The number of reductions since the last drain."""
        calls, self._calls = self._calls, 0
        return calls

    def free(self) -> None:
        """Free the plan."""
        self._inner.free()


def traced(
    name: str,
    inner: planned.Reducer,
    tracer: Tracer,
    reductions: dict[str, dict[str, Any]],
    decided: str,
    contributions: int = 0,
) -> Reducer:
    """Wraps `inner` as the reduction `name` of a run, and describes it in the trace.

    `reductions`: descriptions of the run's reductions by name, extended here; `decided`: who chose the ordering, a
    `trace.schema.Decider`; `contributions`: number from this rank to every call, 0 if unknown.
    The packing of `trees` is recorded as the choice PACKING + name, for replays.
    """
    reducer = Reducer(name, inner, tracer)
    reductions[name] = inner.reduction.json() | {
        "region": reducer.region,
        "ranks": inner.ranks,
        "decided": decided,
        "contributions": contributions,
        "calls": reductions.get(name, {}).get("calls", 0),
    }
    tracer.reduction(name, reductions[name])
    packing = inner.reduction.packing
    if packing is not None and tracer.rank == 0:
        tracer.choice(f"{PACKING}{name}", -1, packing.encode(), math.nan)
    return reducer
