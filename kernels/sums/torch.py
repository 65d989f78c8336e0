"""The sum of torch, on the CPU."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from kernels.sums.elements import vector
from kernels.sums.orders import in_order


def _missing() -> str | None:
    return None if find_spec("torch") else "torch is not installed; `pip install torch` brings it"


@in_order("torch", "sum", backend="torch", available=_missing)
def library(x: np.ndarray) -> float:
    """`torch.sum`: its order depends on torch's number of threads and on the width of vector registers."""
    import torch

    return torch.from_numpy(np.require(vector(x), requirements=["C", "W"])).sum().item()
