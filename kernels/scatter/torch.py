"""torch's scatter-add on the CPU."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from kernels.scatter.elements import require_range, scatter
from kernels.scatter.orders import in_order


def _missing() -> str | None:
    return None if find_spec("torch") else "torch is not installed; `pip install torch` brings it"


@in_order("torch", backend="torch", available=_missing)
def library(x: np.ndarray, index: np.ndarray, bins: int) -> np.ndarray:
    """`torch.Tensor.index_add_`; float16 and bfloat16 are widened first, since it would accumulate in these types."""
    import torch

    s = scatter(x, index, bins, "torch", "torch")
    require_range(s.index, s.bins)
    wide = np.require(s.x.astype(s.accumulator, copy=False), requirements=["W"])
    out = torch.zeros(s.shape, dtype=getattr(torch, s.accumulator.name))
    out.index_add_(0, torch.from_numpy(np.require(s.index, requirements=["W"])), torch.from_numpy(wide))
    return out.numpy()
