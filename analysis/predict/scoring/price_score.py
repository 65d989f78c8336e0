"""Compares predicted prices of guarantees (`analysis.predict.choices.prices`) with measured ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from kernels.guarantees import LEVELS

MOST_RUNS = 30  # most runs of a guarantee that enter a floor
SCORED = ("row", "weakest_row", "kind", "app", "problem", "ranks", "mesh", "guarantee", "weakest", "predicted",
          "measured", "ratio", "error", "floor")  # fmt: skip
ERRORS = ("kind", "guarantee", "targets", "error", "floor", "verdict")


def scored(targets: pd.DataFrame, samples: pd.DataFrame, beside: Mapping[int, str]) -> pd.DataFrame:
    """Scores the prices of guarantees whose predictions have runs; columns SCORED.

    `targets` and `samples` are those of a score. Targets form one group if `beside` {row: conditions except the
    guarantee} is equal. The measured price is the ratio of the medians of the runs, `ratio` is measured over predicted.
    `floor`: the spread between two measured prices, each from one run under both guarantees. If several rows predict
    the weakest guarantee, the first counts."""
    rows: list[tuple[Any, ...]] = []
    known = targets.assign(beside=targets["row"].map(beside), level=targets["guarantee"].map(LEVELS.index))
    by = ["kind", "app", "problem", "beside", "ranks", "clock"]
    for _, own in known.sort_values(["level", "row"], kind="stable").groupby(by, sort=False):
        weakest, others = own.iloc[0], own[own["level"] > own["level"].iloc[0]]
        base = samples.loc[samples["row"] == weakest["row"], "seconds"].to_numpy()
        for each in others.itertuples(index=False):
            seconds = samples.loc[samples["row"] == each.row, "seconds"].to_numpy()
            predicted = each.median_s / weakest["median_s"]
            took = float(np.median(seconds) / np.median(base))
            rows.append(
                (each.row, weakest["row"], each.kind, each.app, each.problem, each.ranks, each.mesh, each.guarantee,
                 weakest["guarantee"], predicted, took, took / predicted, math.expm1(abs(math.log(took / predicted))),
                 floor_of_ratios(seconds, base))
            )  # fmt: skip
    return pd.DataFrame(rows, columns=list(SCORED))


def floor_of_ratios(seconds: np.ndarray, base: np.ndarray) -> float:
    """The spread between two ratios of one of `seconds` to one of `base`, without a common run:
    exp(median |ln(ratio / other ratio)|) - 1; NaN if either has fewer than two runs."""
    first, second = (np.log(np.asarray(each, float)[:MOST_RUNS]) for each in (seconds, base))
    if min(len(first), len(second)) < 2:
        return math.nan
    one, other = ((each[:, None] - each[None])[~np.eye(len(each), dtype=bool)] for each in (first, second))
    return float(np.expm1(np.median(np.abs(one[:, None] - other[None]))))
