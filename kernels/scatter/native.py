"""Scatter-adds in C++.

Every variant takes initial sums as `start`, of the shape and type of the result, +0.0 by default. They count as the
first element of each bin; `start` is not changed.
"""

from __future__ import annotations

import numpy as np

from kernels import _native
from kernels.scatter.elements import Scatter, check, out_of_range, require_range, scatter
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


def looked_up(
    table: np.ndarray, rows: np.ndarray, index: np.ndarray, bins: int, order: str, threads: int = 0
) -> np.ndarray:
    """The scatter-add of table[rows] by `index`, without a copy of these rows: (bins, columns), of the type of sums.

    `table` (m, columns); `rows` and `index` (n,) of int64 or int32. `order`: exact, sorted or atomic. Raises IndexError
    for a row or a bin that does not exist, and TypeError and ValueError as the variants.
    """
    kernel = {
        "exact": _native.scatter_exact,
        "sorted": _native.scatter_sorted,
        "atomic": _native.scatter_atomic,
    }[order]
    s = _lookup(table, rows, index, bins, order)
    out = np.zeros((s.bins, s.x.shape[1]), s.accumulator)
    _checked(s, kernel(s.x, s.x.dtype.name, np.ascontiguousarray(rows), s.index, out, checked(threads)))
    return out


def means(
    x: np.ndarray, index: np.ndarray, counts: np.ndarray, rows: np.ndarray | None = None, threads: int = 0
) -> np.ndarray:
    """The exact sum of each bin, divided by its count and rounded once, to the type of `x`; NaN for a count of 0.

    `x` (n,) or (n, columns), or a table of which `rows` (n,) are added; `index` (n,); `counts` (bins,) int64.
    Returns (bins,) or (bins, columns). A mean of finite numbers is finite, also where their sum is too large for the
    type. Raises as `looked_up`.
    """
    bins = len(counts)
    s = scatter(x, index, bins, "exact", "native") if rows is None else _lookup(x, rows, index, bins, "exact")
    rows = NONE if rows is None else np.ascontiguousarray(rows)
    out = np.empty(s.shape, s.x.dtype)
    counts = np.ascontiguousarray(counts, np.int64)
    _checked(s, _native.scatter_means(s.x, s.x.dtype.name, rows, s.index, counts, out, checked(threads)))
    return out


NONE = np.empty(0, np.int64)  # rows of no table


def _lookup(table, rows, index, bins: int, order: str) -> Scatter:
    """A Scatter of the rows of a table, after checks; its `x` is the table."""
    if table.ndim != 2 or rows.ndim != 1:
        raise ValueError(
            f"rows of shape {rows.shape} of a table of shape {table.shape}: (n,) and (m, columns) are expected"
        )
    for of in (index, rows):
        check(table.dtype.name, (len(rows), table.shape[1]), of.dtype.name, of.shape, bins, order, "native")
    require_range(rows, len(table))
    return Scatter(np.require(table, requirements=["C", "A"]), np.ascontiguousarray(index), int(bins))


def _checked(s: Scatter, bad: int) -> None:
    if bad >= 0:
        raise out_of_range(int(s.index[bad]), bad, s.bins)


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
    _checked(s, kernel(s.x, s.x.dtype.name, NONE, s.index, out, checked(threads)))
    return out
