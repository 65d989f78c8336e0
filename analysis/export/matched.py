"""Matches calls of regions over ranks: the k-th call of a name in a repeat and step is the same on all ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd

KEY = ("repeat", "step", "name", "call")


class Numbers:
    """Assigns a number to every call, the same on all ranks, from 0 in the order of first appearance."""

    def __init__(self):
        self._known: pd.MultiIndex | None = None

    def __len__(self) -> int:
        return 0 if self._known is None else len(self._known)

    def of(self, calls: pd.DataFrame, grow: bool) -> np.ndarray:
        """The number of each of `calls`, distinct rows with the columns KEY: int64 (rows,).

        With `grow` new calls get the next numbers, else -1."""
        if self._known is None and not grow:
            return np.full(len(calls), -1)
        asked = pd.MultiIndex.from_arrays([calls[key].to_numpy() for key in KEY])
        if self._known is None:
            self._known = asked
        if self._known.equals(asked):
            return np.arange(len(asked))
        numbers = self._known.get_indexer(asked)
        new = np.flatnonzero(numbers < 0)
        if grow and len(new):
            numbers[new] = len(self._known) + np.arange(len(new))
            self._known = self._known.append(asked[new])
        return numbers


class Collectives:
    """The collectives in which all `ranks` take part: `add` each rank, then `settle`."""

    def __init__(self, ranks: int):
        self._ranks, self._added, self._numbers = ranks, 0, Numbers()

    def add(self, rank: int, calls: pd.DataFrame) -> None:
        """Adds the collectives of one more rank: `calls` by start, with the columns KEY, `start` and `end`."""
        numbers = self._numbers.of(calls, grow=not self._added)
        if not self._added:
            size = len(self._numbers)
            self._low, self._high = np.full(size, 2**62), np.full(size, -(2**62))
            self._end, self._count = self._high.copy(), np.zeros(size, np.int32)
            self.first, self.last = np.zeros(size, np.int32), np.zeros(size, np.int32)
        self._added += 1
        known = numbers >= 0
        at, start = numbers[known], calls["start"].to_numpy()[known]
        self._count[at] += 1
        self._end[at] = np.maximum(self._end[at], calls["end"].to_numpy()[known])
        earlier, later = start < self._low[at], start >= self._high[at]
        self.first[at[earlier]], self.last[at[later]] = rank, rank
        self._low[at], self._high[at] = np.minimum(self._low[at], start), np.maximum(self._high[at], start)

    def settle(self, begin: int, end: int) -> None:
        """Keeps the collectives that no rank lacks or has cut at `begin` or `end`; call it after all ranks were added.

        Then `first` and `last` are the ranks that reached each collective first and last, by its number in `of`. If
        several ranks arrived at the same time, `first` is the lowest of them and `last` the highest."""
        whole = (self._count == self._ranks) & (self._low >= begin) & (self._end <= end) & (self._high < end)
        self._number = np.where(whole, np.cumsum(whole) - 1, -1)
        self.first, self.last = self.first[whole], self.last[whole]

    def __len__(self) -> int:
        return len(self.first)

    def of(self, calls: pd.DataFrame) -> np.ndarray:
        """The number of each of `calls` among the whole collectives, in the order of the first rank: int64 (rows,).

        -1 for other calls. `calls` are as in `add`."""
        numbers = self._numbers.of(calls, grow=False)
        return np.where(numbers >= 0, np.append(self._number, -1)[numbers], -1)
