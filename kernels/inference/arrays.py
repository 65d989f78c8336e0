"""Inputs of backends: contiguous float32 arrays of samples."""

from __future__ import annotations

import numpy as np


def batch_of(x: np.ndarray, sample: tuple[int, ...], batched: bool = True) -> np.ndarray:
    """x as contiguous float32 `(batch, *sample)`; without `batched`, x is one sample.

    Raises TypeError for another type, since a conversion would change the input silently, and ValueError for another
    shape.
    """
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        kind = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
        raise TypeError(f"x is {kind}: convert it to a NumPy array of float32")
    if not batched:
        x = x[None]
    if x.shape[1:] != tuple(sample) or x.ndim != len(sample) + 1:
        raise ValueError(f"x is {x.shape}: expected (batch, {', '.join(map(str, sample))})")
    return np.ascontiguousarray(x)


def aligned_copy(x: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes: libraries choose other kernels at other addresses."""
    memory = np.empty(x.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 64
    out = memory[begin : begin + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out
