"""torch's sum and dot product on the CPU; they add +0.0, as in `kernels.sums.numpy`."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from kernels.sums.elements import accumulator, vector, vectors, widened
from kernels.sums.orders import in_order


def _missing() -> str | None:
    return None if find_spec("torch") else "torch is not installed; `pip install torch` brings it"


def _tensor(x: np.ndarray):
    import torch

    x = np.require(x, requirements=["C", "W"])
    if x.dtype.name == "bfloat16":
        return torch.from_numpy(x.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(x)


@in_order("torch", "sum", backend="torch", available=_missing)
def library(x: np.ndarray) -> np.floating:
    """`torch.sum`: the order depends on torch's number of threads and on the width of vector registers.

    float16 and bfloat16 are summed with `dtype=float32`.
    """
    import torch

    x = vector(x)
    kind = accumulator(x.dtype)
    return kind.type(_tensor(x).sum(dtype=getattr(torch, kind.name)).item() + 0.0)


@in_order("torch", "dot", backend="torch", available=_missing)
def dot_library(x: np.ndarray, y: np.ndarray) -> np.floating:
    """`torch.dot`: the dot product of torch's BLAS, which divides it among its threads.

    float16 and bfloat16 are converted to float32 first.
    """
    x, y = (widened(v) for v in vectors(x, y))
    return x.dtype.type(_tensor(x).dot(_tensor(y)).item() + 0.0)
