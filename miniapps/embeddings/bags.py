"""Bags: the rows of one table that are added up for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np


@dataclass(frozen=True)
class Bags:
    """The bags of n samples in one table: `lengths` int32 (n,), and all their rows one after another, int32."""

    lengths: np.ndarray
    rows: np.ndarray

    @property
    def samples(self) -> np.ndarray:
        """int64 (lookups,): the sample of each row."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def distinct(self) -> np.ndarray:
        """int32 (distinct rows,), ascending."""
        return np.unique(self.rows)

    def take(self, chosen: np.ndarray) -> Bags:
        """The bags of the samples `chosen`, in that order."""
        ends = np.cumsum(self.lengths, dtype=np.int64)
        lengths = self.lengths[chosen]
        first = np.repeat(ends[chosen] - lengths, lengths)
        within = np.arange(len(first)) - np.repeat(np.cumsum(lengths, dtype=np.int64) - lengths, lengths)
        return Bags(lengths, self.rows[first + within])


def concatenated(parts: Sequence[Bags]) -> Bags:
    """The bags of several groups of samples, one group after another."""
    return Bags(
        np.concatenate([part.lengths for part in parts]), np.concatenate([part.rows for part in parts])
    )
