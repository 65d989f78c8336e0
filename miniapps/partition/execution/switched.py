"""A sum of gradients over lossy wires that may change between calls, and differ between its values.

Neighbours with one wire travel together. The encoding of a block, and the sum of an element, do not depend on what
travels with it. So no bit depends on the grouping. The errors that a wire with feedback keeps belong to a value: they
stay while its wire stays, and begin at 0 when it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from miniapps.partition.execution.wires import feeds_back


@dataclass(frozen=True)
class Neighbours:
    """Neighbouring values [first, last) that travel over one wire, by `reducer`."""

    first: int
    last: int
    wire: str
    reducer: Any


class Switched:
    """A reducer of vectors with several values: value k has the elements [bounds[k], bounds[k + 1]), and its blocks the
    shapes `tensors[k]`.

    `make(n, wire, tensors, label)` plans the all-reduce of n elements, and the caller frees it unless it calls `free`;
    `label` tells it from others of this sum, and is empty for the first. Construction and all methods but `progress`
    are collective.
    """

    def __init__(
        self,
        bounds: Sequence[int],
        tensors: Sequence[Sequence[tuple[int, ...]]],
        make: Callable[[int, str, list[tuple[int, ...]], str], Any],
        wire: str,
    ):
        self.bounds, self.tensors, self._make = bounds, tensors, make
        self.wires: tuple[str, ...] = ()
        self._planned: dict[tuple[int, int, str], Any] = {}
        self._runs: list[Neighbours] = []
        self._total = np.empty(bounds[-1], np.float32)
        self.assign([wire] * len(tensors))

    @property
    def feeds_back(self) -> bool:
        """Whether a wire keeps errors."""
        return any(feeds_back(run.wire) for run in self._runs)

    def assign(self, wires: Sequence[str]) -> None:
        """Send value k over wires[k] from the next call on."""
        if tuple(wires) == self.wires:
            return
        before, kept = self.wires, self.lost() if self.feeds_back else None
        self.wires, self._runs, first = tuple(wires), [], 0
        for wire, group in groupby(wires):
            last = first + len(list(group))
            self._runs.append(Neighbours(first, last, wire, self._reducer(first, last, wire)))
            first = last
        if not self.feeds_back:
            return
        rows, total = (np.zeros_like(array) for array in self.lost())
        for k, (old, new) in enumerate(zip(before, wires, strict=False)):
            if kept is not None and old == new:
                own = slice(self.bounds[k], self.bounds[k + 1])
                rows[:, own], total[own] = kept[0][:, own], kept[1][own]
        self.restore_lost(rows, total)

    def __call__(self, contributions: np.ndarray) -> np.ndarray:
        """The total (n,) of contributions (k, n), valid until the next call."""
        if len(self._runs) == 1:
            return self._runs[0].reducer(contributions)
        for run in self._runs:
            self._total[self._of(run)] = run.reducer(contributions[:, self._of(run)])
        return self._total

    def start(self, contributions: np.ndarray) -> None:
        """Begin to add contributions, which stay as they are until `finish`."""
        for run in self._runs:
            run.reducer.start(contributions[:, self._of(run)])

    def progress(self) -> bool:
        """Advance without waiting; returns whether `finish` would return at once."""
        return all([run.reducer.progress() for run in self._runs])

    def finish(self) -> np.ndarray:
        """The total of what `start` began."""
        if len(self._runs) == 1:
            return self._runs[0].reducer.finish()
        for run in self._runs:
            self._total[self._of(run)] = run.reducer.finish()
        return self._total

    def lost(self) -> tuple[np.ndarray, np.ndarray]:
        """The errors that wires keep: of contributions, float32 (k, n), and of the total, float32 (n,); 0 without
        feedback."""
        found = [(run, *run.reducer.lost()) for run in self._runs if feeds_back(run.wire)]
        rows = np.zeros((len(found[0][1]) if found else 0, self.bounds[-1]), np.float32)
        total = np.zeros(self.bounds[-1], np.float32)
        for run, of_rows, of_total in found:
            rows[:, self._of(run)], total[self._of(run)] = of_rows, of_total
        return rows, total

    def restore_lost(self, contributions: np.ndarray, total: np.ndarray) -> None:
        """Continue from the errors of `lost`, over the same wires."""
        for run in self._runs:
            if feeds_back(run.wire):
                run.reducer.restore_lost(contributions[:, self._of(run)], total[self._of(run)])

    def free(self) -> None:
        """Free all planned reducers."""
        for reducer in self._planned.values():
            reducer.free()

    def _of(self, run: Neighbours) -> slice:
        return slice(self.bounds[run.first], self.bounds[run.last])

    def _reducer(self, first: int, last: int, wire: str) -> Any:
        key = first, last, wire
        if key not in self._planned:
            blocks = [shape for k in range(first, last) for shape in self.tensors[k]]
            n = self.bounds[last] - self.bounds[first]
            label = f"/{first}-{last - 1}/{wire}" if self._planned else ""
            self._planned[key] = self._make(n, wire, blocks, label)
        return self._planned[key]
