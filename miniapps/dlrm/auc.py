"""The area under the ROC curve from integer counts, so that the order of samples and ranks cannot change it."""

from __future__ import annotations

import numpy as np


def twice_wins(positive: np.ndarray, negative: np.ndarray) -> int:
    """The sum over all pairs of a score in `positive` and one in `negative` (none of them NaN) of 2 if the positive
    score is larger, and of 1 if they are equal. The results for parts of `negative` add up to that for the whole."""
    ordered = np.sort(positive)
    smaller = np.searchsorted(ordered, negative, side="left")
    not_larger = np.searchsorted(ordered, negative, side="right")
    return int((2 * len(ordered) - smaller - not_larger).sum())


def area(wins: int, positives: int, negatives: int) -> float:
    """The area for `wins`, the result of `twice_wins` over all pairs; NaN if there are none. Ties count half (Mann &
    Whitney 1947)."""
    return wins / (2 * positives * negatives) if positives and negatives else float("nan")
