"""NumPy's scatter-adds."""

from __future__ import annotations

import numpy as np

from kernels.scatter.elements import require_range, scatter
from kernels.scatter.orders import in_order


@in_order("numpy", backend="numpy")
def library(x: np.ndarray, index: np.ndarray, bins: int) -> np.ndarray:
    """`np.bincount` with weights for float64, `np.add.at` for narrower types; rows column by column.

    `bincount` accumulates in float64 for any type of weights, so it is used for float64 alone. Both add in one thread,
    by ascending place in the input.
    """
    s = scatter(x, index, bins, "numpy", "numpy")
    require_range(s.index, s.bins)
    out = np.zeros(s.shape, dtype=s.accumulator)
    columns = zip(out.T, s.x.T, strict=True) if s.x.ndim == 2 else [(out, s.x)]
    with np.errstate(all="ignore"):
        for sums, column in columns:
            if s.x.dtype == np.float64 and s.bins:
                sums[:] = np.bincount(s.index, weights=column, minlength=s.bins)
            else:
                np.add.at(sums, s.index, column.astype(s.accumulator, copy=False))
    return out
