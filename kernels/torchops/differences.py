"""How far the results of calls lie apart: how many there are, and the published metrics against the first."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kernels import bits
from kernels.torchops.calls import Result, digest

# Beyond this part of the largest element two results are other values, not the same sum in another order.
ROUNDING = {"float64": 1e-9, "float32": 1e-3, "float16": 0.1, "bfloat16": 0.1}


@dataclass(frozen=True)
class Differences:
    """What came of the same call, made `trials` times under other conditions.

    `distinct`: results with other bits. Of these against the first: `v_c`, the largest part of elements whose bits
    differ; `v_ermv`, the largest mean relative difference; `ulp`, the largest distance (None where undefined);
    `values`: whether some differ by more than rounding explains, as where duplicates race for one place. `bound`: where
    nothing differs, what the probability of a difference stays below at 95 %; else None.
    """

    trials: int
    distinct: int
    v_c: float
    v_ermv: float
    ulp: float | None
    values: bool
    bound: float | None

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class Seen:
    """Results as they come: one of each is kept, and what they were."""

    def __init__(self, first: Result | None = None):
        self._results: dict[str, Result] = {}
        self.trials = 0
        if first is not None:
            self.add(first)

    def add(self, result: Result) -> str:
        """Count a result; its digest."""
        key = digest(result)
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
        """What came of all results so far, at least one; `trials`: how many there were, if some were not kept."""
        first, *others = self._results.values()
        return measured(first, others, self.trials if trials is None else trials)


def measured(first: Result, others: Iterable[Result], trials: int) -> Differences:
    """The differences of results, all distinct, against the first of `trials`."""
    v_c, v_ermv, ulp, values, count = 0.0, 0.0, 0.0, False, 1
    for other in others:
        count += 1
        for a, b in zip(first, other, strict=True):
            if a.shape != b.shape or a.dtype != b.dtype:
                v_c, values = 1.0, True
                continue
            if not a.size:
                continue
            if a.dtype.kind in "iub":
                v_c = max(v_c, float(np.mean(a != b)))
                values = values or bool((a != b).any())
                continue
            v_c = max(v_c, float(np.mean(bits.differ(a, b))))
            v_ermv = _larger(v_ermv, bits.v_ermv(a.ravel(), b.ravel())[0])
            ulp = _larger(ulp, bits.largest(bits.ulp_distance(a.ravel(), b.ravel())))
            values = values or _beyond_rounding(a, b)
    bound = None if count > 1 else bits.bound(trials)
    return Differences(trials, count, v_c, v_ermv, ulp if np.isfinite(ulp) else None, values, bound)


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
