"""The GPU's atomic scatter-add on the CPU: a seed gives the order of arrival, so it repeats on any machine."""

from __future__ import annotations

import numpy as np

from kernels.scatter import native
from kernels.scatter.elements import require_range, scatter
from kernels.scatter.orders import in_order
from kernels.sums.emulated import WARP, arrivals


@in_order("atomic", backend="emulated")
def atomic(
    x: np.ndarray,
    index: np.ndarray,
    bins: int,
    seed: int = 0,
    resident: int = 0,
    start: np.ndarray | None = None,
) -> np.ndarray:
    """One addition per element, warp by warp, in the order of arrival for `seed` and `resident`.

    A warp is 32 consecutive elements, or 32 rows. They arrive together and are added by ascending place; the order of
    warps is that of `kernels.sums.emulated.arrivals`. On a device chance decides; here the seed does. `start`: initial
    sums, +0.0 by default.
    """
    s = scatter(x, index, bins, "atomic", "emulated")
    require_range(s.index, s.bins)
    n = len(s.index)
    warps = arrivals(-(-n // WARP), resident, seed)
    places = (warps[:, None] * WARP + np.arange(WARP)).ravel()
    places = places[places < n]
    return native.by_bin(s.x[places], s.index[places], s.bins, threads=1, start=start)
