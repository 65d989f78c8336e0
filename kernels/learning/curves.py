"""Predicts learning curves: fits models by damped least squares and weights them by their BIC.

| model | loss or accuracy at u | source |
|---|---|---|
| `pow3` | c + a (1 + u)^-b, b > 0 | Domhan, Springenberg, Hutter 2015 |
| `exp3` | c + a exp(-b u), b > 0 | the same |
| `log-power` | a / (1 + ((1 + u) / e^b)^c) | the same |
| `ilog2` | c + a / log(2 + u) | the same |

u = n x / x_n is the abscissa of n points, scaled so that the last point is at n. The caller chooses x: steps, or the
sum of learning rates so far. docs/explanation/learning.md has the measured errors of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

FEWEST = 3  # points, at least, for a fit
ROUNDING = 1e-9  # of the range of a curve: smaller residuals count as an exact fit


@dataclass(frozen=True)
class Prediction:
    """Predicted value and standard deviation, and {model: weight} with sum 1.

    If no model could be fitted (`failed`), the mean is the last value, and sigma the standard deviation of the values,
    infinite for a single value; there are no weights. A constant curve continues unchanged, without weights."""

    mean: float
    sigma: float
    models: dict[str, float] = field(default_factory=dict)
    failed: bool = False


@dataclass(frozen=True)
class Model:
    """A curve that is linear in its k coefficients, which multiply `terms(u, shape)` (n, k). `starts`: start values of
    the nonlinear parameters `shape`."""

    terms: Callable[[np.ndarray, np.ndarray], np.ndarray]
    starts: tuple[tuple[float, ...], ...]

    @property
    def parameters(self) -> int:
        """The number of fitted parameters."""
        shape = np.array(self.starts[0])
        return self.terms(np.ones(1), shape).shape[1] + len(shape)


def _with_one(*columns: np.ndarray) -> np.ndarray:
    return np.stack([np.ones_like(columns[0]), *columns], axis=1)


RATES = tuple((float(start),) for start in np.log([0.03, 0.1, 0.3, 1.0, 3.0]))
MODELS = {
    "pow3": Model(lambda u, shape: _with_one((1 + u) ** -np.exp(shape[0])), RATES),
    "exp3": Model(lambda u, shape: _with_one(np.exp(-np.exp(shape[0]) * u)), RATES),
    "log-power": Model(
        lambda u, shape: 1 / (1 + np.exp(shape[1] * (np.log1p(u) - shape[0])))[:, None],
        tuple((b, c) for b in (0.0, 1.0, 3.0) for c in (-2.0, -0.5, 0.5, 2.0)),
    ),
    "ilog2": Model(lambda u, shape: _with_one(1 / np.log(2 + u)), ((),)),
}


def predict(x: ArrayLike, y: ArrayLike, at: float) -> Prediction:
    """The value of a learning curve at the abscissa `at`.

    x: (n,) ascending, not negative; y: (n,); both float64. Fits every model with fewer parameters than points (variable
    projection: Golub and Pereyra 1973; Levenberg and Marquardt for the nonlinear parameters) and weights it by
    exp(-BIC / 2). The variance is that of the models about their mean, plus the mean of their residual variances.
    Raises ValueError for no points, other shapes, NaN or infinite numbers, an abscissa that falls or is below 0, and
    `at` before the last point.
    """
    x, y = checked(x, y, at)
    n, unit = len(x), float(np.abs(y).max()) or 1.0
    scaled = y / unit
    span = float(np.ptp(scaled))
    if n >= FEWEST and not span:
        return Prediction(float(y[-1]), 0.0)
    u, place = (x * (n / x[-1]), at * (n / x[-1])) if x[-1] > 0 else (x, at)
    names, values, variances, scores = [], [], [], []
    for name, model in MODELS.items():
        if model.parameters < n and (fit := fitted(model, u, scaled, place)):
            value, rss = fit
            names.append(name)
            values.append(value)
            variances.append(rss / (n - model.parameters))
            scores.append(n * np.log(rss / n + (ROUNDING * span) ** 2) + model.parameters * np.log(n))
    if not names:
        return Prediction(float(y[-1]), unit * float(scaled.std()) if n > 1 else np.inf, failed=True)
    weights = np.exp((min(scores) - np.array(scores)) / 2)
    weights /= weights.sum()
    mean = float(weights @ values)
    variance = float(weights @ ((np.array(values) - mean) ** 2 + variances))
    models = dict(zip(names, weights.tolist(), strict=True))
    return Prediction(unit * mean, unit * float(np.sqrt(variance)), models)


def checked(x: ArrayLike, y: ArrayLike, at: float) -> tuple[np.ndarray, np.ndarray]:
    """x and y as float64; raises ValueError as `predict` does."""
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if x.ndim != 1 or x.shape != y.shape or not len(x):
        raise ValueError(
            f"a learning curve has shapes {x.shape} and {y.shape}: give as many x as y, at least one"
        )
    for name, numbers in (("x", x), ("y", y), ("at", np.array([at]))):
        if not np.isfinite(numbers).all():
            where = int(np.flatnonzero(~np.isfinite(numbers))[0])
            raise ValueError(
                f"{name}[{where}] of a learning curve is {numbers[where]}: leave out such points"
            )
    if x[0] < 0 or (np.diff(x) < 0).any():
        raise ValueError(
            "x of a learning curve must be 0 or more, and ascend: give the steps, or the sum of learning rates, so far"
        )
    if at < x[-1]:
        raise ValueError(f"a learning curve can be predicted at {x[-1]} or later, not at {at}")
    return x, y


def fitted(model: Model, u: np.ndarray, y: np.ndarray, place: float) -> tuple[float, float] | None:
    """Fits the model to y (n,): (value at `place`, sum of squared residuals); None where no fit is finite."""
    from scipy.optimize import least_squares

    def residuals(shape: np.ndarray) -> np.ndarray:
        terms = model.terms(u, shape)
        return terms @ coefficients(terms, y) - y

    with np.errstate(all="ignore"):
        begun = [(float(np.sum(residuals(np.array(start)) ** 2)), start) for start in model.starts]
        known = [each for each in begun if np.isfinite(each[0])]
        if not known:
            return None
        rss, shape = min(known)
        best = np.array(shape)
        if len(best) and rss > 0:
            try:
                fit = least_squares(residuals, best, method="lm", max_nfev=200)
            except (ValueError, np.linalg.LinAlgError):  # NaN or infinite numbers in the fit
                fit = None
            if fit is not None and 2 * fit.cost < rss:
                best, rss = fit.x, 2 * float(fit.cost)
        terms = model.terms(u, best)
        value = float((model.terms(np.array([place]), best) @ coefficients(terms, y))[0])
    return (value, rss) if np.isfinite([value, rss]).all() else None


def coefficients(terms: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The k coefficients of the least-squares fit of terms (n, k) to y (n,); NaN where terms are not finite."""
    if not np.isfinite(terms).all():
        return np.full(terms.shape[1], np.nan)
    return np.linalg.lstsq(terms, y, rcond=None)[0]
