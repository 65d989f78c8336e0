"""Random numbers keyed by seed and purpose, so that draws for one purpose do not change others."""

import numpy as np

INIT, ORDER, DROPOUT, BLOBS, ARRIVAL, REQUESTS, NEIGHBOURS, ANSWERS, MASK, NOISE, CLICKS, TABLES = range(12)


def generator(seed: int, purpose: int, first: int = 0, second: int = 0) -> np.random.Generator:
    """Philox keyed by (seed, purpose) with a counter from (first, second) on; streams of other numbers never
    overlap."""
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, first, second]))
