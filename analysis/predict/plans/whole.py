"""How far prices of whole steps are off, from steps that a calibration ran with all ranks.

A kernel in a step with others, and a message among kernels, may take longer than alone. A factor of the work and one of
the messages are fitted to the calibration's steps, by least squares of the relative error. Both begin at 1 (ridge
regression: few steps, or steps with hardly a message, move them little). What remains is the error of a step's price.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np

FEWEST = 4  # steps to fit the factors to
NEAR, USUAL = 0.3, 0.05  # standard deviations: of a factor around 1, of a step's price


@dataclass(frozen=True)
class Whole:
    """Factors of the `work` of a step, waiting included, and of its `messages`; `error`: standard deviation of the
    logarithm of what a step takes beside its price, with `freedom` degrees; 0: unknown."""

    work: float = 1.0
    messages: float = 1.0
    error: float = 0.0
    freedom: int = 0


UNFITTED = Whole()


def whole_of(work: Sequence[float], messages: Sequence[float], measured: Sequence[float]) -> Whole:
    """The factors for steps with these (n,) seconds of `work` and `messages`, which took `measured` seconds (n,)."""
    if len(measured) < FEWEST:
        return UNFITTED
    design = np.column_stack([work, messages]) / np.asarray(measured, float)[:, None]
    weights = np.eye(2) * USUAL / NEAR
    factors = np.linalg.lstsq(
        np.vstack([design, weights]), np.append(np.ones(len(design)), np.diag(weights)), rcond=None
    )[0]
    factors = np.maximum(factors, 0.0)
    freedom = len(design) - np.linalg.matrix_rank(design)
    off = np.log(np.maximum(design @ factors, 1e-6))
    of_work, of_messages = factors.tolist()
    return Whole(of_work, of_messages, float(np.sqrt((off**2).sum() / freedom)), int(freedom))


def doubted(parts: Sequence[tuple[str, float, float]], whole: float, replays: int, seed: int) -> np.ndarray:
    """(replays,) factors of the time of a step of `whole` seconds. `parts`: (key, seconds, standard deviation of their
    logarithm); parts of one key are off together, and by as much in every program of one seed."""
    draws: dict[str, np.ndarray] = {}
    factors = np.ones(replays)
    for key, seconds, error in parts:
        if error > 0 and seconds > 0:
            if key not in draws:
                draws[key] = _generator(seed, key).standard_normal(replays)
            factors += seconds / whole * np.expm1(error * draws[key])
    return factors


def off(fit: Whole, title: str, replays: int, seed: int) -> np.ndarray:
    """(replays,) factors by which the step of a program of this `title` may be off."""
    if not fit.freedom:
        return np.ones(replays)
    return np.exp(np.clip(fit.error * _generator(seed, title).standard_t(fit.freedom, replays), -1.0, 1.0))


def _generator(seed: int, key: str) -> np.random.Generator:
    return np.random.default_rng([seed, crc32(key.encode())])
