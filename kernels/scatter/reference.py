"""The definition of a scatter-add."""

from __future__ import annotations

import numpy as np

from kernels.scatter.elements import require_range, scatter
from kernels.scatter.orders import in_order


@in_order("reference", backend="reference")
def ascending(x: np.ndarray, index: np.ndarray, bins: int) -> np.ndarray:
    """out[index[i]] += x[i] from +0.0, by ascending i, one rounding per addition: the input alone fixes the order."""
    s = scatter(x, index, bins, "reference", "reference")
    require_range(s.index, s.bins)
    out = np.zeros(s.shape, dtype=s.accumulator)
    with np.errstate(all="ignore"):
        np.add.at(out, s.index, s.x.astype(s.accumulator, copy=False))
    return out
