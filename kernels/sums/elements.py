"""What may be summed, and what it is accumulated in."""

from __future__ import annotations

import numpy as np

ACCUMULATORS = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),  # ml_dtypes.bfloat16; only its name is needed here
}


def accumulator(dtype) -> np.dtype:
    """The type in which elements of `dtype` are added up, which is also that of their sum.

    float64 for float64, float32 for float32, float16 and bfloat16. Raises TypeError for other types.
    """
    try:
        return ACCUMULATORS[np.dtype(dtype).name]
    except KeyError:
        raise TypeError(f"cannot sum {dtype}: convert it to one of {', '.join(ACCUMULATORS)}") from None


def vector(x) -> np.ndarray:
    """`x` (n,) as kernels want it: contiguous, aligned, of native byte order; copied where it is not.

    Copying first means that the order of additions goes by the index alone. Raises TypeError for an unknown
    element type, ValueError for another number of dimensions than one.
    """
    x = np.asarray(x)
    accumulator(x.dtype)
    if x.ndim != 1:
        raise ValueError(f"cannot sum an array of shape {x.shape}: one dimension is expected, see ravel()")
    return np.require(x, dtype=x.dtype.newbyteorder("="), requirements=["C", "A"])
