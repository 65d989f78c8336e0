"""How far prices of whole steps are off, from steps that a calibration ran with all ranks.

A kernel in a step with others, what is between kernels, and a message among kernels may take longer than alone, or less
long. A factor of each is fitted to the calibration's steps, by least squares of ln(priced / measured) in which a few
steps far off count little (soft L1: the first steps of a process may take half as long again). The seconds of a step's
kernels are those that the other plans' kernels predict, as for a new plan. The factor of kernels grows with the
logarithm of their seconds in the step, as far as the steps show it. All factors begin at 1, growth at 0 (ridge
regression: few steps, or steps with hardly a message, move them little). What remains is the error of a step's price,
less what a price counts apart: the scatter of the measured steps, and the errors of the kernels' models. It begins as
USUAL, which counts as FEWEST steps (Gelman et al., "Bayesian data analysis", section 3.3): a few steps that lie near
their prices by chance say little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt
from zlib import crc32

import numpy as np
from scipy.optimize import minimize

SHORTEST_S = 1e-9
LEAST = 1e-6  # priced over measured
FEWEST = 4  # steps to fit the factors to
USUAL = 0.05  # standard deviation of a step's price
BEGIN = np.array([1.0, 1.0, 1.0, 0.0])  # factors of kernels, rest and messages, and growth of the first
NEAR = np.array([0.3, 0.5, 1.0, 0.05])  # their standard deviations around BEGIN


@dataclass(frozen=True)
class Whole:
    """Factors of the `kernels` of a step, waiting included, of the `rest` of its work, and of its `messages`. That of
    kernels is for exp(`middle`) seconds of them, and has `growth` more for each unit of the logarithm, up to `reach`
    units. `error`: standard deviation of the logarithm of what a step takes beside its price, with `freedom` degrees;
    0: unknown."""

    kernels: float = 1.0
    rest: float = 1.0
    messages: float = 1.0
    growth: float = 0.0
    middle: float = 0.0
    reach: float = 0.0
    error: float = 0.0
    freedom: float = 0.0

    def of_kernels(self, seconds: float) -> float:
        """The factor of kernels that take `seconds` alone."""
        if self.growth == 0.0 or seconds <= 0.0:
            return self.kernels
        return self.kernels + self.growth * float(
            np.clip(log(seconds) - self.middle, -self.reach, self.reach)
        )


UNFITTED = Whole()


def whole_of(parts: np.ndarray, measured: Sequence[float] | np.ndarray, apart: float = 0.0) -> Whole:
    """The factors for steps with (n, 3) seconds of kernels, rest and messages, which took `measured` seconds (n,).
    `apart`: variance of the logarithm of measured over priced that has other causes, which a price counts by itself."""
    if len(measured) < FEWEST:
        return UNFITTED
    logs = np.log(np.maximum(parts[:, 0], SHORTEST_S))
    middle = float(np.median(logs))
    columns = np.column_stack([parts, parts[:, 0] * (logs - middle)])
    design = columns / np.asarray(measured, float)[:, None]

    def loss(factors: np.ndarray) -> float:
        off = np.log(np.maximum(design @ factors, LEAST)) / USUAL
        return float(2.0 * (np.sqrt(1.0 + off**2) - 1.0).sum() + (((factors - BEGIN) / NEAR) ** 2).sum())

    factors = minimize(loss, BEGIN, bounds=[(0.0, None)] * 3 + [(None, None)]).x
    off = np.log(np.maximum(design @ factors, LEAST))
    known = design.T @ design / USUAL**2
    fitted = float(np.trace(np.linalg.solve(known + np.diag(NEAR**-2.0), known)))  # of the four numbers
    freedom = FEWEST + len(design) - fitted
    error = (FEWEST * USUAL**2 + float((off**2).sum())) / freedom - apart
    kernels, rest, messages, growth = factors.tolist()
    reach = float(np.abs(logs - middle).max())
    return Whole(kernels, rest, messages, growth, middle, reach, sqrt(max(error, 0.0)), freedom)


def doubt(parts: Sequence[tuple[str, float, float]], whole: float) -> float:
    """Standard deviation of the factors that `doubted` draws, for small ones."""
    by: dict[str, float] = {}
    for key, seconds, error in parts:
        by[key] = by.get(key, 0.0) + seconds * error
    return sqrt(sum(each**2 for each in by.values())) / whole


def doubted(parts: Sequence[tuple[str, float, float]], whole: float, replays: int, seed: int) -> np.ndarray:
    """(replays,) factors of the time of a step of `whole` seconds. `parts`: (key, seconds, standard deviation of their
    logarithm); parts of one key are off together, and by as much in every program of one seed."""
    draws: dict[str, np.ndarray] = {}
    factors = np.ones(replays)
    for key, seconds, error in parts:
        if error > 0 and seconds > 0:
            if key not in draws:
                draws[key] = _generator(seed, key).standard_normal(replays)
            # Without the last term the mean over many kernels would be longer than their times.
            factors += seconds / whole * np.expm1(error * draws[key] - error**2 / 2)
    return factors


def off(fit: Whole, title: str, replays: int, seed: int) -> np.ndarray:
    """(replays,) factors by which the step of a program of this `title` may be off."""
    if not fit.freedom:
        return np.ones(replays)
    return np.exp(np.clip(fit.error * _generator(seed, title).standard_t(fit.freedom, replays), -1.0, 1.0))


def _generator(seed: int, key: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(key.encode())])
