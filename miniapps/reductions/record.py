"""The statistics that rank 0 keeps of the samples, for figures of merit, verification, fingerprint and summary."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from miniapps.reductions.study import Batch
from miniapps.trace.schema import fingerprint


@dataclass
class Series:
    """Statistics of the samples of one variant at one size, over all arrays."""

    seconds: list[float] = field(default_factory=list)  # medians, one per batch
    largest: float = 0.0  # |V_s|
    distinct: int = 0  # the largest number of bit patterns of one array
    error: float = 0.0  # |value - truth| / sum |x|


class Record:
    """Accumulates batches. `bound(n)` is the largest |value - truth| / sum |x| that any order can produce."""

    def __init__(self, reference: str, bound):
        self.reference, self.bound = reference, bound
        self.series: dict[tuple[int, str], Series] = {}
        self.firsts: dict[tuple[int, int, str], float] = {}  # by (n, array, label)
        self.condition: dict[int, float] = {}  # largest sum |x| / |sum x| by n
        self.worst: dict[
            int, float
        ] = {}  # largest |V_s| over the orders of arrival that the search found, by n
        self.inaccurate: dict[str, str] = {}
        self.inexact: dict[str, str] = {}
        self._patterns: dict[
            tuple[int, str], np.ndarray
        ] = {}  # of arrays whose sampling has not ended, by label

    def add(self, batch: Batch, exact: set[str]) -> None:
        """Add a batch; `exact` holds the labels whose values must equal the truth bit for bit."""
        n, array = batch.n, batch.array
        if batch.first == 0:
            with np.errstate(all="ignore"):
                condition = float(np.float64(batch.magnitude) / abs(np.float64(batch.truth)))
            self.condition[n] = max(self.condition.get(n, 0.0), condition)
        for name, values in batch.values.items():
            self.firsts.setdefault((n, array, name), float(values[0]))
        against = self.firsts[n, array, self.reference]
        for name, values in batch.values.items():
            series = self.series.setdefault((n, name), Series())
            if name in batch.seconds:
                series.seconds.append(float(np.median(batch.seconds[name])))
            self._spread(series, batch, name, values, against)
            self._verify(series, batch, name, values, name in exact)
        for extremes in batch.worst.values():
            self.worst[n] = max(self.worst.get(n, 0.0), _largest(np.array(extremes), against))

    def fingerprint(self, labels: list[str]) -> str:
        """The fingerprint, in hex digits, of the first values of the variants `labels`, by size, array and label."""
        keys = sorted(key for key in self.firsts if key[2] in labels)
        return fingerprint(np.array([self.firsts[key] for key in keys])).hex()

    def _spread(self, series: Series, batch: Batch, name: str, values: np.ndarray, against: float) -> None:
        bits = np.unique(values.view(np.int64))
        if (batch.array, name) in self._patterns:
            bits = np.union1d(self._patterns.pop((batch.array, name)), bits)
        if not batch.last:
            self._patterns[batch.array, name] = bits
        series.distinct = max(series.distinct, len(bits))
        series.largest = max(series.largest, _largest(values, against))

    def _verify(self, series: Series, batch: Batch, name: str, values: np.ndarray, exact: bool) -> None:
        where = f"n = {batch.n}, array {batch.array}"
        if exact and (values.view(np.int64) != np.float64(batch.truth).view(np.int64)).any():
            self.inexact.setdefault(
                name, f"{values[0]!r} is not the correctly rounded {batch.truth!r}, {where}"
            )
        if not (np.isfinite(batch.truth) and np.isfinite(batch.magnitude) and batch.magnitude):
            return
        error = np.abs(values - batch.truth) / batch.magnitude
        series.error = max(series.error, float(np.max(error)))
        if not (error <= self.bound(batch.n)).all():
            self.inaccurate.setdefault(
                name, f"off by {np.max(error):.3g} of sum |x|, more than {self.bound(batch.n):.3g}, {where}"
            )


def _largest(values: np.ndarray, against: float) -> float:
    """max |V_s| of V_s = 1 - |S / S_d|, S_d = `against`; undefined V_s are left out."""
    with np.errstate(all="ignore"):
        spread = np.abs(1.0 - np.abs(values / against))
    return float(np.max(spread, initial=0.0, where=np.isfinite(spread)))
