"""Predictions, made of what replays gave."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from miniapps.untrusted.prediction import PERCENTS, Prediction, from_json, method_hash, read_prediction

__all__ = ["PERCENTS", "Prediction", "from_json", "method_hash", "quantiles_of", "read_prediction"]


def quantiles_of(seconds: Iterable[float]) -> tuple[float, ...]:
    """The quantiles of PERCENTS of `seconds` per step, one of each replay; raises ValueError where there are none, or
    one is no number."""
    samples = np.asarray(list(seconds), float)
    if not samples.size or not np.isfinite(samples).all():
        raise ValueError(f"{samples.size} replays, of which {np.isfinite(samples).sum()} gave a time")
    return tuple(np.quantile(samples, np.array(PERCENTS) / 100).tolist())
