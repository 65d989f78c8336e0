"""Laws fitted to run times against the rank count.

| model | T(p) | parameters |
|---|---|---|
| amdahl | a/p + b | T1 = a + b, serial share s = b / T1 (Amdahl 1967) |
| amdahl + log | a/p + b + c log2 p | the same, and c: a tree of messages |
| amdahl + linear | a/p + b + c p | the same: a queue of messages |
| usl | a/p + b + c (p - 1) | Universal Scalability Law, below: s = b / T1, k = c / T1 |
| p log p | a/p + b + c p log2 p | messages of all to all |
| gustafson (weak) | T1 p / (p - s (p-1)) | scaled speedup p - s (p-1) (Gustafson 1988) |
| constant + log (weak) | b + c log2 p | T1 = b: communication that grows beside constant work |
| constant + linear (weak) | b + c (p - 1) | the same |

The Universal Scalability Law is C(p) = T1 / T(p) = p / (1 + s (p - 1) + k p (p - 1)) (Gunther 2007).
All laws but Gustafson's are linear in their nonnegative coefficients. `amdahl + linear` and `usl` are one family with
different bounds of b, and often fit equally well: then the data do not decide between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from analysis.statistics import CONFIDENCE, SEED
from analysis.studies.contract import frame
from analysis.studies.scaling.series import STRONG
from kernels.as_json import Column

FEWEST = 4  # distinct rank counts
MISFIT = 0.1  # largest relative error of a law that fits; predictions have the same limit
RESAMPLES = 200
COEFFICIENT = Column("float64", "of the model")
FITS = {
    "series": Column("str"), "kind": Column("str", "`strong` or `weak`"), "model": Column("str", "empty without a fit"),
    "chosen": Column("bool", f"the best, if its error is at most {100 * MISFIT:.0f} %"),
    "aicc": Column("float64", "corrected Akaike criterion"), "delta": Column("float64", "its distance to the best"),
    "error": Column("float64", "relative, root mean square"), "runs": Column("int64"),
    "parameters": Column("str", "with 95 % intervals"), "p_low": Column("int64", "fewest ranks of the fit"),
    "p_high": Column("int64", "most ranks of the fit"), "range": Column("str"), "remark": Column("str"),
    "a": COEFFICIENT, "b": COEFFICIENT, "c": COEFFICIENT,
}  # fmt: skip


@dataclass(frozen=True)
class Model:
    """T(p) = basis(p) @ coefficients; `meaning(coefficients)` returns its usual parameters."""

    name: str
    basis: Callable[[np.ndarray], np.ndarray]
    meaning: Callable[[np.ndarray], dict[str, float]]


def _columns(*columns: Callable) -> Callable[[np.ndarray], np.ndarray]:
    return lambda p: np.stack([np.broadcast_to(column(p), p.shape) for column in columns], axis=1)


def _serial(x: np.ndarray) -> dict[str, float]:
    first = x[0] + x[1]
    share = x[1] / first if first > 0 else math.nan
    return {"T1": first, "s": share} | ({"c": x[2]} if len(x) > 2 else {})


def _usl(x: np.ndarray) -> dict[str, float]:
    first = x[0] + x[1]
    return {"T1": first, "s": x[1] / first, "k": x[2] / first} if first > 0 else {"T1": 0.0, "c": x[2]}


STRONG_MODELS = (
    Model("amdahl", _columns(lambda p: 1 / p, lambda p: 1.0), _serial),
    Model("amdahl + log", _columns(lambda p: 1 / p, lambda p: 1.0, np.log2), _serial),
    Model("amdahl + linear", _columns(lambda p: 1 / p, lambda p: 1.0, lambda p: p), _serial),
    Model("usl", _columns(lambda p: 1 / p, lambda p: 1.0, lambda p: p - 1), _usl),
    Model("p log p", _columns(lambda p: 1 / p, lambda p: 1.0, lambda p: p * np.log2(p)), _serial),
)
WEAK_MODELS = (
    Model("gustafson", lambda p: 1 - 1 / p, lambda x: {"T1": x[0], "s": x[1]}),
    Model("constant + log", _columns(lambda p: 1.0, np.log2), lambda x: {"T1": x[0], "c": x[1]}),
    Model("constant + linear", _columns(lambda p: 1.0, lambda p: p - 1), lambda x: {"T1": x[0], "c": x[1]}),
)


def fits(points: pd.DataFrame) -> pd.DataFrame:
    """Fits laws to `points` from `series`, a row per series and candidate, best first; columns FITS.

    A fit minimises the squares of relative residuals (f - T) / T over all runs of a series; `error` is their root mean
    square. `aicc` is the corrected Akaike criterion, n log(RSS / n) + 2k + 2k(k+1)/(n-k-1) with k coefficients and the
    variance; `delta` is its distance to the best, and below about 2 the data do not decide. The best is `chosen` if its
    `error` is at most MISFIT. Otherwise none is chosen, and the `remark` of the best says whether the law misses the
    medians or the runs scatter. `parameters`: text, for the chosen model with 95 % intervals by a bootstrap over runs
    within each rank count, empty for a model that does not fit. `range`: the rank counts of the fit, which is not used
    beyond. Series with fewer than FEWEST rank counts have one row, with the reason as `remark`.
    """
    rows = []
    for (name, kind), own in points.groupby(["series", "kind"], sort=False):
        p, seconds = own["size"].to_numpy(float), own["wall_s"].to_numpy()
        ends = int(p.min()), int(p.max())
        series = {"series": name, "kind": kind, "runs": len(own), "p_low": ends[0], "p_high": ends[1]}
        counts = len(np.unique(p))
        if counts < FEWEST:
            remark = f"not fitted: {counts} rank count{'s' if counts > 1 else ''}, a fit needs {FEWEST}"
            rows.append(
                series | {"model": "", "chosen": False, "parameters": "", "remark": remark, "range": ""}
            )
            continue
        candidates = sorted((_fitted(model, p, seconds) for model in _models(kind)), key=lambda fit: fit[1])
        for place, (model, aicc, error, x) in enumerate(candidates):
            good = error <= MISFIT
            drawn = intervals(model, p, seconds) if place == 0 and good else {}
            remark = _remark(model, x, candidates, place, p) if good else _misfit(model, x, p, seconds)
            rows.append(series | {
                "model": model.name, "chosen": place == 0 and good, "aicc": aicc,
                "delta": aicc - candidates[0][1] if place else 0.0,
                "error": error, "parameters": _parameter_text(model.meaning(x), drawn) if good else "",
                "range": f"measured: {ends[0]} to {ends[1]} ranks" if good else "", "remark": remark,
                **dict(zip("abc", x, strict=False)),
            })  # fmt: skip
    return frame(rows, FITS)


def curve(row, p: np.ndarray) -> np.ndarray:
    """T at rank counts `p` by the model of `row` of `fits`; NaN outside of the measured rank counts."""
    model = next(m for m in _models(row.kind) if m.name == row.model)
    x = np.array([value for value in (row.a, row.b, row.c) if not math.isnan(value)])
    return np.where((p >= row.p_low) & (p <= row.p_high), predict(model, p, x), np.nan)


def predict(model: Model, p: np.ndarray, x: np.ndarray) -> np.ndarray:
    """T(p) for coefficients `x`."""
    if model.name == "gustafson":
        return x[0] / (1 - x[1] * model.basis(p))
    return model.basis(p) @ x


def solve(model: Model, p: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """The coefficients with the least squared relative residuals."""
    from scipy.optimize import curve_fit, nnls

    if model.name != "gustafson":
        return nnls(model.basis(p) / seconds[:, None], np.ones(len(p)))[0]
    first = float(np.median(seconds[p == p.min()]))
    x, _ = curve_fit(
        lambda p, t, s: predict(model, p, np.array([t, s])), p, seconds, p0=(first, 0.1), sigma=seconds,
        bounds=([0.0, 0.0], [np.inf, 1 - 1e-9]),
    )  # fmt: skip
    return x


def aicc(residuals: np.ndarray, coefficients: int) -> float:
    """The corrected Akaike criterion of relative `residuals`; infinite for too few of them."""
    n, k = len(residuals), coefficients + 1
    if n - k - 1 <= 0:
        return math.inf
    # Exact data would give every model a criterion of minus infinity: rounding limits it.
    mean = max(float(np.mean(residuals**2)), float(np.finfo(float).eps) ** 2)
    return n * math.log(mean) + 2 * k + 2 * k * (k + 1) / (n - k - 1)


def _models(kind: str) -> tuple[Model, ...]:
    return STRONG_MODELS if kind == STRONG else WEAK_MODELS


def _fitted(model: Model, p: np.ndarray, seconds: np.ndarray) -> tuple[Model, float, float, np.ndarray]:
    x = solve(model, p, seconds)
    residuals = predict(model, p, x) / seconds - 1
    return model, aicc(residuals, len(x)), float(np.sqrt(np.mean(residuals**2))), x


def intervals(model: Model, p: np.ndarray, seconds: np.ndarray) -> dict[str, tuple[float, float]]:
    """95 % percentile intervals of the parameters by a bootstrap over runs within each rank count; none if every rank
    count has one run."""
    groups = [np.flatnonzero(p == size) for size in np.unique(p)]
    if max(map(len, groups)) < 2:
        return {}
    rng = np.random.default_rng(SEED)
    drawn: dict[str, list[float]] = {}
    for _ in range(RESAMPLES):
        rows = np.concatenate([rng.choice(group, len(group)) for group in groups])
        for key, value in model.meaning(solve(model, p[rows], seconds[rows])).items():
            drawn.setdefault(key, []).append(value)
    tail = (1 - CONFIDENCE) / 2
    return {key: tuple(np.quantile(values, [tail, 1 - tail]).tolist()) for key, values in drawn.items()}


def _parameter_text(parameters: dict[str, float], intervals: dict[str, tuple[float, float]]) -> str:
    parts = []
    for key, value in parameters.items():
        low, high = intervals.get(key, (math.nan, math.nan))
        between = f" ({low:.3g} to {high:.3g})" if low == low else ""
        parts.append(f"{key} = {value:.3g}{' s' if key in ('T1', 'c') else ''}{between}")
    return ", ".join(parts)


def _misfit(model: Model, x: np.ndarray, p: np.ndarray, seconds: np.ndarray) -> str:
    """Why a law does not fit: it misses the median of a rank count, or the runs on one rank count scatter."""
    sizes = np.unique(p)
    medians = np.array([np.median(seconds[p == size]) for size in sizes])
    off = np.abs(predict(model, sizes, x) / medians - 1)
    worst = int(np.argmax(off))
    if off[worst] > MISFIT:
        return f"does not fit: off by {off[worst]:.0%} at {sizes[worst]:.0f} rank{'s' if sizes[worst] > 1 else ''}"
    scatter = float(np.sqrt(np.mean((seconds / medians[np.searchsorted(sizes, p)] - 1) ** 2)))
    return f"no verdict: runs on one rank count scatter by {scatter:.0%}"


def _remark(model: Model, x: np.ndarray, candidates: list, place: int, p: np.ndarray) -> str:
    if math.isinf(candidates[place][1]):
        return "too few runs for as many coefficients"
    close = [other.name for other, value, _, _ in candidates[1:] if value - candidates[0][1] < 2]
    remarks = [f"not decided against {', '.join(close)}"] if place == 0 and close else []
    if model.name == "usl" and x[2] > 0 and place == 0:
        best = math.sqrt(x[0] / x[2])
        within = p.min() <= best <= p.max()
        remarks.append(
            f"fastest at {best:.3g} ranks" if within else "no fastest rank count among the measured ones"
        )
    return "; ".join(remarks)
