"""Which rank owns which logical block: contiguous runs, or the same runs with blocks swapped at random."""

import numpy as np


def contiguous_owner(count: int, size: int) -> np.ndarray:
    """(count,) int32: rank r owns a contiguous run of count/size blocks, the first ranks one more."""
    base, extra = divmod(count, size)
    return np.repeat(np.arange(size, dtype=np.int32), [base + (r < extra) for r in range(size)])


def shuffled(owner: np.ndarray, seed: int) -> np.ndarray:
    """`owner` (count,) permuted by `seed`, for tests: no result may depend on it; 0 leaves it as it is."""
    return np.random.Generator(np.random.Philox(key=seed)).permutation(owner) if seed else owner
