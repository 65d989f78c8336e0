"""Scatter-adds in C++.

Every variant takes initial sums as `start`, of the shape and type of the result, +0.0 by default. They count as the
first element of each bin; `start` is not changed.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.scatter.elements import out_of_range, scatter
from kernels.scatter.orders import in_order
from kernels.threads import checked


@in_order("atomic", backend="native")
def atomic(
    x: np.ndarray, index: np.ndarray, bins: int, threads: int = 0, start: np.ndarray | None = None
) -> np.ndarray:
    """One `omp atomic` per element, by `threads` (0: OpenMP's default) in random interleaving: not fixed."""
    return _run(_native.scatter_atomic, "atomic", x, index, bins, threads, start)


@in_order("sorted", backend="native")
def by_bin(
    x: np.ndarray, index: np.ndarray, bins: int, threads: int = 0, start: np.ndarray | None = None
) -> np.ndarray:
    """All threads sort stably into ranges of bins; then one thread adds each range, by ascending i.

    Fixed: a bin adds its elements in the order of the input, with the bits of `reference`.
    """
    return _run(_native.scatter_sorted, "sorted", x, index, bins, threads, start)


@in_order("exact", backend="native")
def exact(
    x: np.ndarray, index: np.ndarray, bins: int, threads: int = 0, start: np.ndarray | None = None
) -> np.ndarray:
    """One or two limbs of 42 bits, or integers of 128 bits, where they can hold every bit; else a superaccumulator per
    bin, after a sort by bin.

    Correctly rounded, so the order does not change bits. A bin with NaN or infinities has their sum by IEEE rules; they
    do not affect other bins. Zero is +0.0.
    """
    return _run(_native.scatter_exact, "exact", x, index, bins, threads, start)


def _run(kernel, name: str, x, index, bins: int, threads: int, start) -> np.ndarray:
    s = scatter(x, index, bins, name, "native")
    if start is None:
        out = np.zeros(s.shape, dtype=s.accumulator)
    elif start.shape == s.shape and start.dtype == s.accumulator:
        out = np.array(start, order="C")
    else:
        raise ValueError(
            f"scatter_add {name!r} (native) cannot begin with {start.dtype} of shape {start.shape}: "
            f"{s.accumulator} of shape {s.shape} is expected"
        )
    bad = kernel(s.x, s.x.dtype.name, s.index, out, checked(threads))
    if bad >= 0:
        raise out_of_range(int(s.index[bad]), bad, s.bins)
    return out
