"""Verification after every run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from miniapps.reductions.record import Record
from miniapps.runner.outcome import Check


def roundoff(dtype: np.dtype, ranks: int, operation: str) -> Callable[[int], float]:
    """bound(n): the largest |value - truth| / sum|x| of a sum of n terms in any order, in arithmetic of `dtype`.

    It is k u / (1 - k u), where u is the unit roundoff and a term passes through k roundings (Higham, Accuracy and
    Stability of Numerical Algorithms, section 4.2): those of n additions on a rank, of the additions over ranks, and
    for a dot product of the multiplication.
    """
    unit = float(np.finfo(dtype).eps) / 2

    def bound(n: int) -> float:
        share = (n + ranks + (operation == "dot")) * unit
        return share / (1 - share) if share < 1 else np.inf

    return bound


def verify(record: Record, broken: dict[str, str]) -> list[Check]:
    """Checks of a finished repeat, on rank 0. `broken` holds the variants that broke their promise, and where."""

    def check(name: str, failed: dict[str, str]) -> Check:
        return Check(
            name, not failed, "; ".join(f"{variant}: {detail}" for variant, detail in failed.items())
        )

    return [
        check("promises", broken),
        check("roundoff", record.inaccurate),
        check("correctly rounded", record.inexact),
    ]
