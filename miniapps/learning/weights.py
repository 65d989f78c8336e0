"""Weights: initial values, and their records in a trace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np

from kernels import draws
from miniapps.learning.seeds import INIT, generator
from miniapps.trace import fingerprint


def initial(shapes: dict[str, tuple[int, ...]], seed: int) -> list[np.ndarray]:
    """Initial weights, float32: normal with variance 2 / fan in (He et al. 2015), biases 0.
    Independent of torch's generators."""
    arrays = []
    for number, shape in enumerate(shapes.values()):
        if len(shape) > 1:
            drawn = draws.normal(generator(seed, INIT, number), shape).astype(np.float32)
            arrays.append(drawn * np.float32(np.sqrt(2.0 / np.prod(shape[1:]))))
        else:
            arrays.append(np.zeros(shape, np.float32))
    return arrays


def fingerprints(weights: Sequence[np.ndarray], hashed: str = "xxh3") -> list[bytes]:
    """The fingerprint of each tensor."""
    return [fingerprint(array, hashed) for array in weights]


def combined(prints: Iterable[bytes]) -> str:
    """The hash of the fingerprints of all weights and biases, in the order of the model: 32 hex digits."""
    return hashlib.blake2b(b"".join(prints), digest_size=16).hexdigest()


def sampled(x: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The places of `count` evenly spaced elements of `x` (n,), at most all, and these elements as float64."""
    places = np.linspace(0, len(x) - 1, min(count, len(x))).astype(int)
    return places, x[places].astype(np.float64)
