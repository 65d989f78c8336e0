"""Three simple predictions, beside which a better one has to stand: 1/p, mean replay, and the form of Extra-P."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

NAMES = ("1/p", "mean replay", "Extra-P")
# Rank counts from which two coefficients can be chosen by leaving one out; Extra-P itself asks for 5.
FEWEST = 3
LEAST_SHARE = 0.0005  # share of a prediction below which a term does not count
# Exponents (i, j) of p^i log2(p)^j that Extra-P tries by default (its version 4), those of i also below zero, as it
# does for strong scaling.
LOGARITHMIC = (
    (0, 1), (0, 2), (1 / 4, 1), (1 / 3, 1), (1 / 4, 2), (1 / 3, 2), (1 / 2, 1), (1 / 2, 2), (2 / 3, 1), (3 / 4, 1),
    (2 / 3, 2), (3 / 4, 2), (1, 1), (1, 2), (5 / 4, 1), (4 / 3, 1), (3 / 2, 1), (3 / 2, 2), (2, 1), (2, 2), (5 / 2, 1),
    (5 / 2, 2), (3, 1),
)  # fmt: skip
POWERS = (1 / 4, 1 / 3, 1 / 2, 2 / 3, 3 / 4, 4 / 5, 1, 5 / 4, 4 / 3, 3 / 2, 5 / 3, 7 / 4, 2, 9 / 4, 7 / 3, 5 / 2, 8 / 3,
          11 / 4, 3)  # fmt: skip


def inverse(seconds: float, ranks: int, target: int) -> float:
    """1/p: the time per step on `ranks` ranks, scaled as if all of it were shared."""
    return seconds * ranks / target


def mean_replay(seconds: float, waiting: float, ranks: int, target: int) -> float:
    """The mean step replayed: what is not spent in collectives and exchanges is shared among the ranks, and these take
    the `waiting` seconds per step that they took on `ranks` ranks."""
    return (seconds - waiting) * ranks / target + waiting


def extra_p(measured: Mapping[int, float], target: int) -> float:
    """c + a p^i log2(p)^j, as Extra-P fits it to {ranks: seconds per step}, on `target` ranks; NaN for fewer than
    FEWEST rank counts, or where the law is not above zero there.

    The one term that predicts best what is left out, one rank count after the other, by the mean of 2 |m - t| / (m + t)
    (SMAPE), or a constant, if none is better (Calotoiu et al., Using automated performance modeling to find scalability
    bugs in complex codes, SC 2013). As there, logarithms are not tried where one rank was measured, since below zero
    exponents they have no value.
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
    """(c, a) of the least squares through c + a x."""
    if np.ptp(x) == 0:
        return float(y.mean()), 0.0
    a, c = np.polyfit(x, y, 1)
    return float(c), float(a)


def _smape(predicted: np.ndarray, measured: np.ndarray) -> float:
    return float(np.mean(2 * np.abs(predicted - measured) / (np.abs(predicted) + np.abs(measured))))
