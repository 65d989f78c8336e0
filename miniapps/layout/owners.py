"""Which rank owns which logical block: contiguous runs, or the same runs with blocks swapped at random."""

import heapq
from collections.abc import Sequence

import numpy as np


def contiguous_owner(count: int, size: int) -> np.ndarray:
    """(count,) int32: rank r owns a contiguous run of count/size blocks, the first ranks one more."""
    base, extra = divmod(count, size)
    return np.repeat(np.arange(size, dtype=np.int32), [base + (r < extra) for r in range(size)])


def owner_of(counts: Sequence[int]) -> np.ndarray:
    """(sum of counts,) int32: rank r owns a contiguous run of `counts[r]` blocks."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def balanced(count: int, seconds: Sequence[float]) -> list[int]:
    """How many of `count` blocks each rank owns so that the slowest is done first; `seconds` a block on each rank.

    Every rank has one block, and every further one goes to the rank that would be done with it first, the lowest of
    equals: this greedy dealing has the least possible maximum. Raises ValueError for fewer blocks than ranks, and where
    `seconds` are not positive and finite.
    """
    if count < len(seconds) or not np.isfinite(seconds).all() or min(seconds) <= 0.0:
        raise ValueError(f"{count} blocks cannot be dealt by the times {list(seconds)}")
    counts = [1] * len(seconds)
    done = [(2.0 * time, rank) for rank, time in enumerate(seconds)]
    heapq.heapify(done)
    for _ in range(count - len(seconds)):
        _, rank = done[0]
        counts[rank] += 1
        heapq.heapreplace(done, ((counts[rank] + 1) * seconds[rank], rank))
    return counts


def shuffled(owner: np.ndarray, seed: int) -> np.ndarray:
    """`owner` (count,) permuted by `seed`, for tests: no result may depend on it; 0 leaves it as it is."""
    return np.random.Generator(np.random.Philox(key=seed)).permutation(owner) if seed else owner
