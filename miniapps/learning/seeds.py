"""Random numbers by purpose: each is keyed by its seed and by what it is drawn for, so that no draw moves another."""

import numpy as np

INIT, ORDER, DROPOUT, BLOBS, ARRIVAL, REQUESTS, NEIGHBOURS, ANSWERS, MASK, NOISE, CLICKS, TABLES = range(12)


def generator(seed: int, purpose: int, first: int = 0, second: int = 0) -> np.random.Generator:
    """Philox keyed by (seed, purpose) whose counter begins at (first, second): those of other numbers never meet."""
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, first, second]))
