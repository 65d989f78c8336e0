"""Differences of the sums of one variant: from each other, and separately from a reference.

The distance to a reference that another algorithm computed includes the change of algorithm. So each array has three
numbers: between samples, of the median sample from the reference, and, as published, of the samples from the reference.
`kernels.bits` defines the metrics and their undefined cases.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.statistics import middle, quantile
from analysis.studies.sums.runs import CELL, PLACE, SERIES, Sums, pieces
from kernels import bits
from kernels.bits import bound

QUANTILE = 0.95  # of |V_s|; its maximum grows with the number of samples
CHUNK = 1 << 21  # numbers per piece of work: about ten temporaries of 16 MB


def of_arrays(sums: Sums, reference: pd.DataFrame) -> pd.DataFrame:
    """A row per variant and array: columns CELL and those of `statistics`; `s_d`, the reference of V_s; and
    `reference`, its source (empty without one)."""
    samples = sums.samples
    begin = pieces(samples, CELL)
    frame = samples.iloc[begin][CELL].reset_index(drop=True)
    plain = frame.astype({key: "str" for key in SERIES[:4]})
    place = plain.merge(reference, on=PLACE, how="left")
    truth = plain.merge(sums.truth.astype({"case": "str"}), on=["case", "n", "array"], how="left")
    against = [column.to_numpy(np.float64, na_value=np.nan) for column in (place["value"], truth["value"])]
    known = [place["reference"].notna().to_numpy(), truth["value"].notna().to_numpy()]
    columns: dict[str, np.ndarray] = {}
    for rows, values in blocks(samples["value"].to_numpy(), begin):
        for name, column in statistics(values, *(side[rows] for side in against)).items():
            columns.setdefault(name, np.full(len(frame), np.nan))[rows] = column
    for side, names in zip(known, (AGAINST_REFERENCE, AGAINST_TRUTH), strict=True):
        for name in names:
            if name in columns:
                columns[name][~side] = np.nan
    named = place["reference"].fillna("").astype("str")
    return frame.assign(**columns, s_d=against[0], reference=named)


AGAINST_REFERENCE = ("v_s_max", "v_s_quantile", "v_s_median", "shift", "ulp_max", "undefined")
AGAINST_TRUTH = ("error_median", "error_max")


def blocks(values: np.ndarray, begin: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows, values (rows, m)) of the stretches of `values` that begin at `begin`: stretches of equal length m
    together, in pieces of at most CHUNK numbers."""
    lengths = np.diff(begin, append=len(values))
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        step = max(1, CHUNK // length)
        for i in range(0, len(rows), step):
            some = rows[i : i + step]
            yield some, values[begin[some][:, None] + np.arange(length)]


def statistics(values: np.ndarray, reference: np.ndarray, truth: np.ndarray) -> dict[str, np.ndarray]:
    """Statistics of the samples `values` float64 (arrays, m), in recorded order, against `reference` and `truth`
    (arrays,). Each is a float64 array (arrays,); undefined terms are left out.

    samples       m
    distinct      different bit patterns
    effective     effective number of outcomes, 1 / sum p^2 (Laakso & Taagepera 1979)
    bound         if distinct is 1: upper bound of the probability of another result at 95 % confidence, about 3 / m;
                  else NaN
    median        the lower median: one of the samples
    pair_max      largest V_s of any two samples: 1 - min|S| / max|S|
    pair_median   median |V_s| of the independent pairs of samples 0 and 1, 2 and 3, ...
    least, most   of the samples
    own_ulp       units in the last place from the least to the largest sample
    shift         |V_s| of the median against the reference: the change of algorithm
    v_s_max, v_s_quantile, v_s_median   of |V_s| = |1 - |S / S_reference|| (arXiv 2408.05148), which includes both
    ulp_max       largest distance from the reference in ULP
    undefined     samples whose V_s is undefined (NaN on one side)
    error_median, error_max   distance from the correctly rounded value in ULP
    """
    arrays, m = values.shape
    order = np.sort(bits.ranks(values), axis=1)
    new = np.ones((arrays, m), bool)
    new[:, 1:] = order[:, 1:] != order[:, :-1]
    distinct = new.sum(axis=1)
    median = bits.numbers(order[:, (m - 1) // 2])
    size = np.abs(bits.v_s(reference[:, None], values))
    distance = bits.ulp_distance(reference[:, None], values)
    error = bits.ulp_distance(truth[:, None], values)
    low, high = _extremes(np.abs(values))
    least, most = _extremes(values)
    even = values[:, : m // 2 * 2]
    between = np.abs(bits.v_s(even[:, ::2], even[:, 1::2]))
    return {
        "samples": np.full(arrays, m),
        "distinct": distinct,
        "effective": m**2 / _squares(new),
        "bound": np.where(distinct == 1, bound(m), np.nan),
        "median": median,
        "pair_max": np.abs(bits.v_s(high, low)),
        "pair_median": middle(between),
        "least": least,
        "most": most,
        "own_ulp": bits.ulp_distance(least, most),
        "shift": np.abs(bits.v_s(reference, median)),
        "v_s_max": bits.largest(size),
        "v_s_quantile": quantile(size, QUANTILE),
        "v_s_median": middle(size),
        "ulp_max": bits.largest(distance),
        "undefined": np.isnan(size).sum(axis=1),
        "error_median": middle(error),
        "error_max": bits.largest(error),
    }


def of_series(arrays: pd.DataFrame) -> pd.DataFrame:
    """Summarises `arrays` from `of_arrays`, a row per variant and n: columns SERIES, `reference`, and

    arrays, samples (fewest of an array), differing (arrays with more than one result), distinct, effective (largest
    over arrays), bound (of one array, if none differs), pair_median (median over arrays), pair_max, own_ulp, shift,
    v_s_max, v_s_quantile, ulp_max (largest over arrays), undefined (sum), error_median (median), error_max (largest).
    """
    by = arrays.assign(differs=arrays["distinct"] > 1).groupby(SERIES, observed=True, sort=True)
    most, middles = by.max(numeric_only=True), by.median(numeric_only=True)
    frame = by.agg(
        reference=("reference", "max"), arrays=("array", "size"), samples=("samples", "min"),
        differing=("differs", "sum"), undefined=("undefined", "sum"),
    )  # fmt: skip
    for column in ("distinct", "effective", "pair_max", "own_ulp", "shift", "v_s_max", "v_s_quantile", "ulp_max",
                   "error_max"):  # fmt: skip
        frame[column] = most[column]
    for column in ("pair_median", "error_median"):
        frame[column] = middles[column]
    frame["bound"] = most["bound"].where(frame["differing"] == 0)
    return frame.reset_index()


def _squares(new: np.ndarray) -> np.ndarray:
    """(rows,) sum over outcomes of their squared counts; `new` marks the first of each outcome in a sorted row."""
    flat = new.ravel()
    begin = np.flatnonzero(flat)
    runs = np.diff(begin, append=flat.size).astype(np.float64) ** 2
    return np.add.reduceat(runs, np.flatnonzero(begin % new.shape[1] == 0))


def _extremes(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(least, largest) defined element of each row; NaN without any."""
    defined = ~np.isnan(x)
    some = defined.any(axis=1)
    low = np.where(some, np.where(defined, x, np.inf).min(axis=1), np.nan)
    return low, np.where(some, np.where(defined, x, -np.inf).max(axis=1), np.nan)


def worst_orders(sums: Sums, arrays: pd.DataFrame) -> pd.DataFrame:
    """The search for the worst orders beside the samples, a row per variant and array. `arrays` is from `of_arrays`.

    Columns: CELL; `low` and `high`, the least and largest sum of the search; `bound`, the larger |V_s| of the two;
    `v_s_max` of the samples; `share`, the range of the samples over that of the search; `outside`, whether a sample is
    outside this range, so that the search missed the worst order. The reference of V_s is the usual one, or else the
    median sample."""
    keys = {key: "str" for key in SERIES[:4]}
    where = ["case", "variant", "backend", "n", "array"]
    worst = sums.worst.astype({key: "str" for key in where[:3]})
    both = arrays.astype(keys).merge(worst, on=where)
    against = both["s_d"].where(both["reference"] != "", both["median"])
    sides = [np.abs(bits.v_s(against.to_numpy(), both[side].to_numpy())) for side in ("low", "high")]
    seen = [np.abs(bits.v_s(against.to_numpy(), both[side].to_numpy())) for side in ("least", "most")]
    both["bound"], both["v_s_max"] = np.fmax(*sides), np.fmax(*seen)
    both["share"] = (both["most"] - both["least"]) / (both["high"] - both["low"])
    both["outside"] = (both["least"] < both["low"]) | (both["most"] > both["high"])
    return both[[*CELL, "low", "high", "bound", "v_s_max", "share", "outside"]]
