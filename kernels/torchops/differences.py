"""Differences between results: the number of distinct ones, and the published metrics against the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from kernels import bits
from kernels.torchops.results import Result, significant

MOST_PARTS = 20  # names of parts that differ

# Results that differ by more than this fraction of the largest element have other values. For sums that cancel it may
# still be rounding.
ROUNDING = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.1}


@dataclass(frozen=True)
class Differences:
    """The differences between `trials` calls of one case under changed conditions.

    `distinct`: the number of results with different bits. Against the first result: `v_c`, the largest fraction of
    elements with different bits; `v_ermv`, the largest mean relative difference; `ulp`, the largest distance (None
    where undefined). `values`: whether any differs by more than ROUNDING of the largest element, as after a race for
    one place or after cancellation. `kinds`: whether names, types or shapes differ. `bound`: if nothing differs, the
    95 % upper bound on the probability of a difference; else None. `parts`: the names of the arrays that differ, at
    most MOST_PARTS.
    """

    trials: int
    distinct: int
    v_c: float
    v_ermv: float
    ulp: float | None
    values: bool
    kinds: bool
    bound: float | None
    parts: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Seen:
    """Collects results: keeps one of each, and counts all."""

    def __init__(self, first: Result | None = None):
        self._results: dict[str, Result] = {}
        self.trials = 0
        if first is not None:
            self.add(first)

    def add(self, result: Result) -> str:
        """Counts a result; returns its digest."""
        key = result.digest()
        self._results.setdefault(key, result)
        self.trials += 1
        return key

    @property
    def distinct(self) -> int:
        return len(self._results)

    @property
    def first(self) -> Result:
        return next(iter(self._results.values()))

    def differences(self, trials: int | None = None) -> Differences:
        """The differences of all results so far, at least one; `trials` replaces their number if some are missing."""
        first, *others = self._results.values()
        return measured(first, others, self.trials if trials is None else trials)


def measured(first: Result, others: Iterable[Result], trials: int) -> Differences:
    """The differences of distinct results against the first, for `trials` calls."""
    v_c, v_ermv, ulp, values, kinds, count = 0.0, 0.0, 0.0, False, False, 1
    parts: dict[str, None] = {}
    for other in others:
        count += 1
        if first.leaves.keys() != other.leaves.keys():
            v_c, kinds = 1.0, True
        for name in sorted(first.leaves.keys() & other.leaves.keys()):
            a, b = first.leaves[name], other.leaves[name]
            if a.shape != b.shape or a.dtype != b.dtype:
                v_c, kinds = 1.0, True
                parts[name] = None
                continue
            if not a.size:
                continue
            apart = float(np.mean((significant(a) != significant(b)).any(axis=1)))
            v_c = max(v_c, apart)
            if apart:
                parts[name] = None
            x, y = _real(a), _real(b)
            if x is None or y is None:
                values = values or a.tobytes() != b.tobytes()
                continue
            v_ermv = _larger(v_ermv, bits.v_ermv(x, y)[0])
            values = values or _beyond_rounding(x, y)
            if x.dtype in bits.WORDS:
                ulp = _larger(ulp, bits.largest(bits.ulp_distance(x, y)))
            elif apart:
                ulp = np.inf  # not defined for this type
    bound = None if count > 1 else bits.bound(trials)
    return Differences(
        trials,
        count,
        v_c,
        v_ermv,
        ulp if np.isfinite(ulp) else None,
        values,
        kinds,
        bound,
        list(parts)[:MOST_PARTS],
    )


def _real(array: np.ndarray) -> np.ndarray | None:
    """The real numbers of a floating-point array (n,), both parts for a complex one; None for other types."""
    flat = array.reshape(-1)
    if flat.dtype.kind == "c":
        flat = flat.view(flat.real.dtype)
    if flat.dtype in bits.WORDS:
        return flat
    if flat.dtype.kind in "iubSUmMO":
        return None
    try:
        return flat.astype(np.float64) if flat.dtype.kind == "f" else flat.astype(np.float32)
    except (TypeError, ValueError):
        return None


def _larger(a: float, b) -> float:
    return a if np.isnan(b) else max(a, float(b))


def _beyond_rounding(a: np.ndarray, b: np.ndarray) -> bool:
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(a64 - b64)
    if (np.isnan(a64) != np.isnan(b64)).any() or np.isinf(apart).any():
        return True
    size = float(np.nanmax(np.abs(a64), initial=0.0, where=np.isfinite(a64)))
    return bool(np.nanmax(apart, initial=0.0) > ROUNDING.get(a.dtype.name, 1e-3) * size)
