"""Scatter-adds in C++."""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.scatter.elements import out_of_range, scatter
from kernels.scatter.orders import in_order


@in_order("atomic", backend="native")
def atomic(x: np.ndarray, index: np.ndarray, bins: int, threads: int = 0) -> np.ndarray:
    """One `omp atomic` per element, by `threads` (0: OpenMP's default), interleaved by chance: not fixed."""
    return _run(_native.scatter_atomic, "atomic", x, index, bins, threads)


@in_order("sorted", backend="native")
def by_bin(x: np.ndarray, index: np.ndarray, bins: int, threads: int = 0) -> np.ndarray:
    """Sorted stably into ranges of bins by all threads, each range then added by one of them, by ascending i.

    Fixed: a bin sees its elements in the order of the input, so that its bits are those of `reference`.
    """
    return _run(_native.scatter_sorted, "sorted", x, index, bins, threads)


def _run(kernel, name: str, x, index, bins: int, threads: int) -> np.ndarray:
    s = scatter(x, index, bins, name, "native")
    out = np.zeros(s.shape, dtype=s.accumulator)
    bad = kernel(s.x, s.x.dtype.name, s.index, out, threads)
    if bad >= 0:
        raise out_of_range(int(s.index[bad]), bad, s.bins)
    return out
