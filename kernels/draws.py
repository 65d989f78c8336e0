"""Random numbers with the same bits on every processor, from the words of a generator of NumPy.

NumPy's own uniform and normal numbers call the C library, or are compiled to fused operations on some processors.
Here integers become numbers by exact and correctly rounded operations alone (`kernels.elementary`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from kernels.elementary import exponential, quantile

PIECE = 2**13  # numbers made at once, so that they stay in a cache


def normal(rng: np.random.Generator, shape: int | tuple[int, ...]) -> np.ndarray:
    """Standard normal numbers, float64 of `shape`; each takes one word of 64 bits. They end near -8.2 and 8.2."""
    shape = (shape,) if isinstance(shape, int) else shape
    return normal_of(rng.bit_generator.random_raw(prod(shape))).reshape(shape)


def lognormal(rng: np.random.Generator, sigma: float, shape: int | tuple[int, ...]) -> np.ndarray:
    """e^(sigma x) of standard normal numbers x, float64 of `shape`."""
    return _by_pieces(lambda x: exponential(sigma * x), normal(rng, shape))


def normal_of(words: np.ndarray) -> np.ndarray:
    """Standard normal numbers of words, uint64: the quantiles of probabilities that are odd multiples of 2^-53."""
    return _by_pieces(lambda part: quantile(((part >> np.uint64(12)) + 0.5) * 2.0**-52), words)


def uniform(rng: np.random.Generator, low: float, high: float, shape: int | tuple[int, ...]) -> np.ndarray:
    """Uniform numbers from `low` to below `high`, float64 of `shape`; rounding may reach `high`."""
    return low + (high - low) * rng.random(shape)


def _by_pieces(function: Callable[[np.ndarray], np.ndarray], x: np.ndarray) -> np.ndarray:
    """The function of each element, float64, computed for PIECE of them at once."""
    out, flat = np.empty(x.size), x.reshape(-1)
    for start in range(0, x.size, PIECE):
        out[start : start + PIECE] = function(flat[start : start + PIECE])
    return out.reshape(x.shape)
