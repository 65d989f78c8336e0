"""Inputs of cases, drawn from the name of the case and a seed.

All numbers of a sum differ: a tensor of equal numbers, or of integers, can hide that its terms are added in another
order, and equal gradients of repeated indices have hidden real races.
"""

from __future__ import annotations

import hashlib

import ml_dtypes  # noqa: F401 - registers the name bfloat16
import numpy as np

LINE = 64  # bytes: addresses count from a multiple of a cache line, which is also the widest vector register


class Draw:
    """Seeded inputs of one case; every call draws further numbers."""

    def __init__(self, name: str, seed: int):
        digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
        self._rng = np.random.Generator(np.random.Philox([seed, int.from_bytes(digest, "little")]))

    def normal(self, shape, dtype="float32", scale: float = 1.0) -> np.ndarray:
        """Standard normal numbers times `scale`."""
        return (scale * self._rng.standard_normal(shape)).astype(dtype)

    def positive(self, shape, dtype="float32") -> np.ndarray:
        """Uniform in [0.5, 1.5)."""
        return (0.5 + self._rng.random(shape)).astype(dtype)

    def index(self, shape, bins: int) -> np.ndarray:
        """int64, uniform in [0, bins), with repetitions."""
        return self._rng.integers(0, bins, shape)

    def permutation(self, count: int) -> np.ndarray:
        """A random permutation, int64 (count,)."""
        return self._rng.permutation(count)

    def binary(self, shape, probability: float) -> np.ndarray:
        """bool, true with that probability."""
        return self._rng.random(shape) < probability
