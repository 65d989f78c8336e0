"""Computes the optimal transport between the outcomes of two cells of runs: the monotone map, and its cost.

In one dimension the optimal transport map from A to B is x -> F_B^-1(F_A(x)), and its cost is the Wasserstein distance
W1 = integral |F_A^-1(q) - F_B^-1(q)| dq (Villani, Topics in Optimal Transportation, theorem 2.18). The map less x is
the shift function of Doksum (Annals of Statistics 2, 1974): it shows in which part of the distribution B is above A,
and by how much. Tens of runs estimate no more than this.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd

from analysis.ends import final
from analysis.groups import grouped
from analysis.load.frames import Frames
from analysis.runs import Id, ids
from analysis.statistics import CONFIDENCE, SEED
from miniapps.trace.records import is_state

FEWEST = 20  # the fewest runs on either side: deciles of fewer are single runs
QUANTILES = np.arange(1, 10) / 10
RESAMPLES = 2000  # resamples of the bootstrap, and permutations

TRANSPORT = ["a", "b", "name", "step", "runs_a", "runs_b", "w1", "scale", "p", "above", "below"]
SHIFTS = ["a", "b", "name", "step", "quantile", "start", "end", "shift", "low", "high"]


def transport(frames: Frames) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """(rows TRANSPORT, rows SHIFTS, notes) between every two cells of one problem.

    There is a row for every value of one element, at the last step that all runs of both cells recorded, and a note for
    each pair of cells with fewer than FEWEST complete runs on a side, which has no row.

    w1            the distance, in the unit of the value
    scale         the standard deviation of both sides together
    p             of a permutation test of equal distributions by w1 (Phipson and Smyth 2010: never zero)
    above, below  deciles, as text, at which the band lies above or below zero
    shift         of a decile: `end` of B less `start` of A
    low, high     the band that covers all nine shifts at 95 %
    """
    rows: list[dict[str, object]] = []
    shifts: list[dict[str, object]] = []
    notes = []
    runs = grouped(frames.runs)
    for _, problem in runs[runs["complete"]].groupby(["app", "problem"], sort=False):
        cells = {str(cell): ids(members) for cell, members in problem.groupby("cell", sort=False)}
        for a, b in combinations(cells, 2):
            if min(len(cells[a]), len(cells[b])) < FEWEST:
                notes.append(
                    f"{a} ({len(cells[a])} runs) and {b} ({len(cells[b])} runs): no transport, which needs {FEWEST} "
                    "complete runs of each"
                )
                continue
            for name, step, x, y in _values(frames, cells[a], cells[b]):
                where = {"a": a, "b": b, "name": name, "step": step}
                own = shift(x, y)
                rows.append(where | {"runs_a": len(x), "runs_b": len(y)} | _distance(x, y) | _sides(own))
                shifts += [where | row for row in own.to_dict("records")]
    return pd.DataFrame(rows, columns=TRANSPORT), pd.DataFrame(shifts, columns=SHIFTS), notes


def w1(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """W1 between samples along the last axes of `x` (..., n) and `y` (..., m): the integral over q of the absolute
    difference of both quantile functions.

    The integral is exact, since these are step functions. `scipy.stats.wasserstein_distance` gives the same number for
    one pair; this function takes many resamples at once."""
    n, m = x.shape[-1], y.shape[-1]
    ends = np.union1d(np.arange(1, n + 1) * m, np.arange(1, m + 1) * n)  # of the steps, in 1 / (n m)
    widths = np.diff(ends, prepend=0)
    places = ends - 1
    apart = np.abs(np.sort(x, axis=-1)[..., places // m] - np.sort(y, axis=-1)[..., places // n])
    return (apart * widths).sum(axis=-1) / (n * m)


def shift(x: np.ndarray, y: np.ndarray, seed: int = SEED) -> pd.DataFrame:
    """The shift function at the deciles, from `x` to `y`: columns quantile, start, end, shift, low, high. The band is
    simultaneous: the shift +- its bootstrap standard error times the 95 % quantile of the largest studentised deviation
    over the deciles. If no resample moves a decile, the band has no width there."""
    rng = np.random.default_rng(seed)
    start, end = np.quantile(x, QUANTILES), np.quantile(y, QUANTILES)
    drawn = _resampled(y, rng) - _resampled(x, rng)
    own = end - start
    error = drawn.std(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        furthest = np.nan_to_num(np.abs(drawn - own[:, None]) / error[:, None], posinf=0).max(axis=0)
    half = np.quantile(furthest, CONFIDENCE) * error
    return pd.DataFrame(
        {
            "quantile": QUANTILES,
            "start": start,
            "end": end,
            "shift": own,
            "low": own - half,
            "high": own + half,
        }
    )


def _resampled(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Deciles of resamples of `x`: (9, RESAMPLES)."""
    return np.quantile(rng.choice(x, (RESAMPLES, len(x))), QUANTILES, axis=1)


def _distance(x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    both = np.concatenate([x, y])
    distance = float(w1(x, y))
    mixed = np.random.default_rng(SEED).permuted(np.tile(both, (RESAMPLES, 1)), axis=1)
    # Sums are in another order: distances that differ only by rounding count as equal.
    further = (w1(mixed[:, : len(x)], mixed[:, len(x) :]) >= distance * (1 - 1e-12)).sum()
    return {"w1": distance, "scale": float(both.std(ddof=1)), "p": float((further + 1) / (RESAMPLES + 1))}


def _sides(shifts: pd.DataFrame) -> dict[str, str]:
    deciles = (shifts["quantile"] * 10).round().astype(int)
    return {
        "above": ", ".join(map(str, deciles[shifts["low"] > 0])),
        "below": ", ".join(map(str, deciles[shifts["high"] < 0])),
    }


def _values(frames: Frames, a: list[Id], b: list[Id]) -> list[tuple[str, int, np.ndarray, np.ndarray]]:
    """(name, step, values of a, values of b) of every finite value of one element that all recorded."""
    recorded = []
    for name in filter(is_state, frames.names):
        last = final(frames, "values", name, [*a, *b])
        if last is None or last[2].shape[1] != 1:
            continue
        step, outcome, words = last
        x = words[outcome, 0, 0].view(np.float64)
        if np.isfinite(x).all():
            recorded.append((name, step, x[: len(a)], x[len(a) :]))
    return recorded
