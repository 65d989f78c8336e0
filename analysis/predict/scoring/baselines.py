"""Three simple predictions as baselines: 1/p, mean replay, and the form of Extra-P."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

NAMES = ("1/p", "mean replay", "Extra-P")
# Rank counts needed to fit two coefficients with one left out; Extra-P itself requires 5.
FEWEST = 3
LEAST_SHARE = 0.0005  # largest share of a term in a prediction that still rejects the term
# Exponents (i, j) of p^i log2(p)^j that version 4 of Extra-P tries by default; POWERS also negated, as Extra-P does for
# strong scaling.
LOGARITHMIC = (
    (0, 1), (0, 2), (1 / 4, 1), (1 / 3, 1), (1 / 4, 2), (1 / 3, 2), (1 / 2, 1), (1 / 2, 2), (2 / 3, 1), (3 / 4, 1),
    (2 / 3, 2), (3 / 4, 2), (1, 1), (1, 2), (5 / 4, 1), (4 / 3, 1), (3 / 2, 1), (3 / 2, 2), (2, 1), (2, 2), (5 / 2, 1),
    (5 / 2, 2), (3, 1),
)  # fmt: skip
POWERS = (1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 4 / 5, 1, 5 / 4, 4 / 3, 3 / 2, 5 / 3, 7 / 4, 2, 9 / 4, 7 / 3, 5 / 2, 8 / 3,
          11 / 4, 3)  # fmt: skip


def inverse(seconds: float, ranks: int, target: int) -> float:
    """1/p: the time per step on `ranks` ranks, scaled as if ranks shared all work."""
    return seconds * ranks / target


def mean_replay(seconds: float, waiting: float, ranks: int, target: int) -> float:
    """The mean step, replayed: collectives and exchanges take `waiting` seconds per step as on `ranks` ranks; the ranks
    share the rest."""
    return (seconds - waiting) * ranks / target + waiting


def extra_p(measured: Mapping[int, float], target: int) -> float:
    """c + a p^i log2(p)^j, as Extra-P fits it to {ranks: seconds per step}, on `target` ranks; NaN for fewer than
    FEWEST rank counts, or if the law is not positive there.

    Leave-one-out cross-validation over rank counts selects the term with the smallest mean of 2 |m - t| / (m + t)
    (SMAPE), or a constant if no term is better (Calotoiu et al., Using automated performance modeling to find
    scalability bugs in complex codes, SC 2013). Like Extra-P, it tries no logarithms if one rank was measured: log2(1)
    is 0.
    """
    p = np.array(sorted(measured), float)
    t = np.array([measured[int(each)] for each in p])
    if len(p) < FEWEST:
        return float("nan")
    best, smallest = float(t.mean()), _smape(np.full(len(t), t.mean()), t)
    terms = [(i * sign, 0.0) for sign in (1, -1) for i in POWERS] + (list(LOGARITHMIC) if p.min() > 1 else [])
    for i, j in terms:
        x, at = p**i * np.log2(p) ** j, float(target) ** i * np.log2(float(target)) ** j
        left_out = [_line(np.delete(x, k), np.delete(t, k)) for k in range(len(p))]
        error = _smape(np.array([c + a * each for (c, a), each in zip(left_out, x, strict=True)]), t)
        c, a = _line(x, t)
        if error < smallest and np.max(np.abs(a * x / (c + a * x))) >= LEAST_SHARE:
            best, smallest = c + a * at, error
    return best if best > 0 else float("nan")


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """(c, a) of the least-squares line c + a x."""
    if np.ptp(x) == 0:
        return float(y.mean()), 0.0
    a, c = np.polyfit(x, y, 1)
    return float(c), float(a)


def _smape(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.mean(2 * np.abs(predicted - measured) / (np.abs(predicted) + np.abs(measured))))
