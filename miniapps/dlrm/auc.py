"""The area under the ROC curve from counts of ranks: integers, so that no order of samples or ranks can show."""

from __future__ import annotations

import numpy as np


def twice_wins(positive: np.ndarray, negative: np.ndarray) -> int:
    """Over all pairs of a score of `positive` and one of `negative`, none of them NaN: 2 where the positive one is
    larger, 1 where they are equal. Parts of `negative` add up to the whole."""
    ordered = np.sort(positive)
    smaller = np.searchsorted(ordered, negative, side="left")
    not_larger = np.searchsorted(ordered, negative, side="right")
    return int((2 * len(ordered) - smaller - not_larger).sum())


def area(wins: int, positives: int, negatives: int) -> float:
    """`wins` as by `twice_wins` over all pairs; NaN where there are none. Ties count half (Mann & Whitney 1947)."""
    return wins / (2 * positives * negatives) if positives and negatives else float("nan")
