"""The assignment of logical blocks to ranks: contiguous runs, an early and a late one, or a random permutation."""

import heapq
from collections.abc import Sequence

import numpy as np


def contiguous_owner(count: int, size: int) -> np.ndarray:
    """(count,) int32: rank r owns a contiguous run of count/size blocks; if that is no integer, the first ranks own one
    block more than the others."""
    base, extra = divmod(count, size)
    return np.repeat(np.arange(size, dtype=np.int32), [base + (r < extra) for r in range(size)])


def zigzag_owner(count: int, size: int) -> np.ndarray:
    """(count,) int32: of 2 `size` contiguous runs of blocks, rank r owns run r and run 2 `size` - 1 - r. This balances
    work that grows with the place of a block, as in causal attention."""
    runs = contiguous_owner(count, 2 * size)
    return np.minimum(runs, 2 * size - 1 - runs)


def in_turn_owner(count: int, size: int) -> np.ndarray:
    """(count,) int32: the ranks own blocks in turn."""
    return np.arange(count, dtype=np.int32) % size


def owner_of(counts: Sequence[int]) -> np.ndarray:
    """(sum of counts,) int32: rank r owns a contiguous run of `counts[r]` blocks."""
    return np.repeat(np.arange(len(counts), dtype=np.int32), counts)


def balanced(count: int, seconds: Sequence[float]) -> list[int]:
    """The number of blocks, of `count`, that each rank owns so that the last rank ends as early as possible; `seconds`
    holds the time of a block on each rank.

    Every rank has one block, and every further block goes to the rank that would finish it first (the lowest of equal
    ranks); this greedy assignment has the least possible maximum. Raises ValueError if there are fewer blocks than
    ranks, or if `seconds` are not positive and finite.
    """
    if count < len(seconds) or not np.isfinite(seconds).all() or min(seconds) <= 0.0:
        raise ValueError(f"{count} blocks cannot be assigned by the times {list(seconds)}")
    counts = [1] * len(seconds)
    done = [(2.0 * time, rank) for rank, time in enumerate(seconds)]
    heapq.heapify(done)
    for _ in range(count - len(seconds)):
        _, rank = done[0]
        counts[rank] += 1
        heapq.heapreplace(done, ((counts[rank] + 1) * seconds[rank], rank))
    return counts


def shuffled(owner: np.ndarray, seed: int) -> np.ndarray:
    """`owner` (count,) permuted by `seed`, or unchanged for seed 0; for tests, since no result may depend on it."""
    return np.random.Generator(np.random.Philox(key=seed)).permutation(owner) if seed else owner
