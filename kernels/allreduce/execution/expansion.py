"""Exact sums of a rank's contributions as few float64 numbers per element, and elements that these cannot hold.

An element is marked (kernels/native/cascade.hpp) if its sum is not finite, or takes more than PARTS numbers, as for
contributions of very different size. Rounding keeps the mark in the total, where every rank finds it. Then all ranks
add the words of a superaccumulator for these elements alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernels import _native, exact
from kernels.allreduce.accumulate import marked

if TYPE_CHECKING:
    from mpi4py import MPI

PARTS = _native.EXACT_PARTS
BATCH = 4096  # elements whose words are added at a time, 560 bytes each

# From places int64 (m,) in the flat vector to the words, int64 (m, WORDS), of this rank's sums there.
WordsOf = Callable[[np.ndarray], np.ndarray]


class Expansion:
    """The exact sum of contributions (k, n), in the first rows of `parts`, float64 (PARTS, n)."""

    def __init__(self, parts: np.ndarray):
        self.parts = parts
        self.clear()

    def clear(self) -> None:
        """Forgets all contributions."""
        self.used = 0
        self._beside: list[tuple[np.ndarray, np.ndarray]] = []

    def add(self, contributions: np.ndarray) -> None:
        """Add contributions (k, n), C-contiguous, of float64, float32, float16 or bfloat16."""
        self.used, places, values = _native.exact_expand(contributions, self.parts, self.used)
        if places is not None:
            self._beside.append((places, values))

    def rows(self, count: int = 0) -> np.ndarray:
        """Returns the rows in use, at least `count`, with marks in the first: float64 (rows, n). Call it once, after
        all contributions."""
        if not self.used:
            self.add(np.empty((0, self.parts.shape[1])))
        self.parts[self.used : count] = 0
        self._firsts = {}
        if self._beside:
            places = np.unique(np.concatenate([places for places, _ in self._beside]))
            self._firsts = dict(zip(places.tolist(), self.parts[0, places].tolist(), strict=True))
            self.parts[0, places] = _native.MARK
        return self.parts[: max(self.used, count)]

    def words_of(self, places: np.ndarray) -> np.ndarray:
        """The words at `places` (see WordsOf); call `rows` first."""
        rows = self.parts[: self.used, places]
        for column, place in enumerate(places.tolist()):
            if place in self._firsts:
                rows[0, column] = self._firsts[place]
        words = exact.zeros(len(places))
        exact.add(words, rows)
        if self._beside:
            beside, values = (np.concatenate(parts) for parts in zip(*self._beside, strict=True))
            columns = np.searchsorted(places, beside)
            found = (columns < len(places)) & (places[np.minimum(columns, len(places) - 1)] == beside)
            _add_at(words, columns[found], values[found])
        return words


def _add_at(words: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
    """Adds each value (m,) to the words of its column: by column, or by turns over all columns if these are fewer."""
    order = np.argsort(columns, kind="stable")
    columns, values = columns[order], values[order]
    starts = np.flatnonzero(np.diff(columns, prepend=-1))
    counts = np.diff(starts, append=len(columns))
    if len(starts) <= counts.max(initial=0):
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            exact.add(words[columns[start]], values[start : start + count])
        return
    for turn in range(counts.max(initial=0)):
        at = starts[counts > turn] + turn
        some = words[columns[at]]
        exact.add(some, values[np.newaxis, at])
        words[columns[at]] = some


class WordsExpansion(Expansion):
    """An Expansion of sums that are words (n, WORDS) already; it keeps these."""

    def __init__(self, parts: np.ndarray, words: np.ndarray):
        super().__init__(parts)
        self._words = words
        self.used, places, values = _native.exact_expand_words(words, parts)
        if places is not None:
            self._beside.append((places, values))

    def words_of(self, places):
        words = self._words[places]
        exact.carry(words)
        return words


def words_of(contributions: np.ndarray) -> WordsOf:
    """Returns a function for the words of contributions (k, n)."""

    def words(places: np.ndarray) -> np.ndarray:
        result = exact.zeros(len(places))
        exact.add(result, contributions[:, places])
        return result

    return words


def settle(comm: MPI.Comm, total: np.ndarray, words: WordsOf, part: slice | None = None) -> None:
    """Sums the marked elements of `total` (n,) again, as words, and rounds them once. Collective.

    `part`: the elements of the total that this rank has; None if all ranks have all, and so see the same marks.
    """
    places = marked(total) if part is None else _of_all(comm, marked(total[part]) + (part.start or 0))
    for start in range(0, len(places), BATCH):
        batch = places[start : start + BATCH]
        values = exact.round(_added(comm, words(batch)), np.empty(len(batch), total.dtype))
        have = slice(None) if part is None else (batch >= part.start) & (batch < part.stop)
        total[batch[have]] = values[have]


def _added(comm: MPI.Comm, words: np.ndarray) -> np.ndarray:
    """The words of all ranks, added as integers."""
    everything = np.empty_like(words)
    comm.Allreduce(words, everything)
    return everything


def _of_all(comm: MPI.Comm, places: np.ndarray) -> np.ndarray:
    """The places of all ranks, ascending."""
    count = np.empty(1, np.int64)
    comm.Allreduce(np.array([len(places)], np.int64), count)
    if not count[0]:
        return places
    return np.unique(np.concatenate(comm.allgather(places)))
