"""Cost of a segment of work as a function of several sizes, such as batch and width.

    t = sum over e of c_e x1^e1 x2^e2 ..., c_e >= 0

The x are options that set the size of the problem and that the runs vary independently. An exponent is at most 2, since
the operations of a layer grow with the square of its width. It is also less than the number of values of its option
among the runs: two values do not distinguish a square from a line. Relative nonnegative least squares (Lawson and
Hanson 1974, chapter 23) fits the coefficients to the mean time at each size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from analysis.predict.costs.kernel_times import inside_hull
from analysis.predict.costs.segments import SegmentCost, residuals_of
from analysis.predict.reading.skeleton import Key, Skeleton

SQUARE = 2
LAW = "law of sizes"


@dataclass(frozen=True)
class Laws:
    """`costs` of every key at the requested sizes; `error`: standard deviation of ln(measured / fitted) of whole steps
    over the measured sizes; `freedom`: its degrees of freedom, 0 for as many terms as sizes; `extrapolated` and
    `remarks`: what the runs do not determine."""

    costs: Mapping[Key, SegmentCost]
    error: float
    freedom: int
    extrapolated: Sequence[str]
    remarks: Sequence[str]


def varied(runs: Sequence[Mapping[str, float]]) -> list[str]:
    """The size options, two or more, that `runs` vary independently; none if fewer than two differ, or if two change
    only together."""
    names = [name for name in runs[0] if len({sizes.get(name) for sizes in runs}) > 1] if runs else []
    if len(names) < 2 or any(name not in sizes for sizes in runs for name in names):
        return []
    logs = np.log([[sizes[name] for name in names] for sizes in runs])
    return names if np.linalg.matrix_rank(logs - logs.mean(axis=0), tol=1e-9) == len(names) else []


def laws_of(runs: Sequence[Skeleton], names: Sequence[str], sizes: Mapping[str, float], work: float) -> Laws:
    """The costs of every key of `runs`, all on one rank, at `sizes` of the options `names` from `varied`. A step at
    these sizes has `work`; ranks share all of its cost but the constant."""
    points = np.array([[run.sizes[name] for name in names] for run in runs])
    at = np.array([sizes[name] for name in names])
    rows = pd.concat(
        [run.segments.assign(run=k, work=run.share) for k, run in enumerate(runs)], ignore_index=True
    )
    known, place = np.unique(points, axis=0, return_inverse=True)
    rows["point"] = place.ravel()[rows["run"].to_numpy()]
    costs: dict[Key, SegmentCost] = {}
    # Seconds of one step at each size, measured and fitted.
    whole, fitted, steps = np.zeros(len(known)), np.zeros(len(known)), np.zeros(len(known))
    np.add.at(steps, place.ravel(), [len(run.steps) for run in runs])
    fewest, unknown = len(known), 0.0
    for key, own in rows.groupby("key", sort=False):
        by = own.groupby("point")["ns"].agg(["mean", "sum", "size"])
        here = by.index.to_numpy()
        seconds = by["mean"].to_numpy(float) / 1e9
        exponents = _exponents(known[here])
        terms = _terms(known[here], exponents, at)
        coefficients = _fit(terms, seconds)
        constant = float(coefficients[0])
        rest = float(coefficients[1:].sum())  # terms are 1 at the sizes asked for
        costs[key] = SegmentCost(constant, rest / work, residuals_of(own), LAW)
        whole[here] += by["sum"].to_numpy(float) / 1e9
        fitted[here] += terms @ coefficients * by["size"].to_numpy(float)
        fewest = min(fewest, len(known) - len(exponents))
        if np.linalg.matrix_rank(terms / terms.max(axis=0)) < len(exponents):
            unknown += constant + rest
    error, freedom = _error(whole / steps, fitted / steps, fewest)
    extrapolated, remarks = _untold(known, names, at)
    if unknown > 0:
        extrapolated.append("sizes that act together")
        remarks.append(
            f"the runs do not determine the joint effect of {' and '.join(names)}; give runs of each value of one with "
            "each value of the others"
        )
    if not freedom:
        remarks.append(
            "the law has as many terms as the runs have sizes, so its error is unknown; give runs of more sizes"
        )
    return Laws(costs, error, freedom, extrapolated, remarks)


def _exponents(points: np.ndarray) -> np.ndarray:
    """(terms, options) exponents, the constant first."""
    most = [min(SQUARE, len(set(column)) - 1) for column in points.T.tolist()]
    return np.array(list(product(*(range(each + 1) for each in most))))


def _terms(points: np.ndarray, exponents: np.ndarray, at: np.ndarray) -> np.ndarray:
    """(points, terms) values of the terms, scaled to 1 at the requested sizes `at`."""
    return np.exp(np.log(points / at) @ exponents.T)


def _fit(terms: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """(terms,) coefficients by relative nonnegative least squares."""
    scale = terms.max(axis=0)
    weight = 1.0 / np.maximum(seconds, 1e-12)
    return nnls(terms / scale * weight[:, None], np.ones(len(seconds)))[0] / scale


def _error(measured: np.ndarray, fitted: np.ndarray, freedom: int) -> tuple[float, int]:
    some = (measured > 0) & (fitted > 0)
    if freedom < 1 or not some.all():
        return 0.0, 0
    logs = np.log(measured / fitted)
    return math.sqrt(float((logs**2).sum()) / freedom), freedom


def _untold(known: np.ndarray, names: Sequence[str], at: np.ndarray) -> tuple[list[str], list[str]]:
    """(extrapolations, remarks) for the requested sizes `at` and the measured sizes `known`."""
    extrapolated, remarks = [], []
    if not inside_hull(np.log(known), np.log(at)):
        extrapolated.append("sizes beyond those of the runs")
    for name, column, value in zip(names, known.T.tolist(), at.tolist(), strict=True):
        if len(values := sorted(set(column))) == 2 and value not in values:
            remarks.append(
                f"two values of {name} ({values[0]:g} and {values[1]:g}) do not distinguish a square from a line; the "
                "prediction assumes a line; give a run of a third value if the square matters"
            )
    return extrapolated, remarks
