"""The definition of a sum."""

from __future__ import annotations

import numpy as np

from kernels.sums.elements import vector
from kernels.sums.orders import in_order


@in_order("reference", "sum", backend="reference")
def left_to_right(x: np.ndarray) -> float:
    """Left to right from +0.0, one rounding per addition. Fixed by the order of the elements alone."""
    with np.errstate(all="ignore"):
        return float(np.cumsum(vector(x))[-1] + 0.0) if len(x) else 0.0
