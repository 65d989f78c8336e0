"""Types of elements: their accumulators, checks, and conversions for C++."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

ACCUMULATORS: dict[str, np.dtype] = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float32),
    "bfloat16": np.dtype(np.float32),  # ml_dtypes.bfloat16; only its name is needed here
}


@lru_cache
def element(dtype) -> str:
    """The name of a type of elements, which is its key in ACCUMULATORS. Raises TypeError for other types."""
    name = np.dtype(dtype).name
    if name not in ACCUMULATORS:
        raise TypeError(f"cannot sum {dtype}: convert it to one of {', '.join(ACCUMULATORS)}")
    return name


def accumulator(dtype) -> np.dtype:
    """The type in which elements of `dtype` are added, also the type of the sum.

    float64 for float64, float32 for float32, float16 and bfloat16. Raises TypeError for other types.
    """
    return ACCUMULATORS[element(dtype)]


def vector(x) -> np.ndarray:
    """`x` (n,), contiguous, aligned and of native byte order; copied if it is not.

    After the copy the order of additions depends on the index alone. Raises TypeError for an unknown element type,
    ValueError for a number of dimensions other than one.
    """
    x = np.asarray(x)
    element(x.dtype)
    if x.ndim != 1:
        raise ValueError(f"cannot sum an array of shape {x.shape}: one dimension is expected, see ravel()")
    if x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative:
        return x
    return np.require(x, dtype=x.dtype.newbyteorder("="), requirements=["C", "A"])


def vectors(x, y) -> tuple[np.ndarray, np.ndarray]:
    """The factors of a dot product, each converted by `vector`.

    Raises as `vector`, TypeError for different types, and ValueError for different lengths.
    """
    x, y = vector(x), vector(y)
    if x.dtype != y.dtype:
        raise TypeError(f"cannot multiply {x.dtype} by {y.dtype}: convert both factors to one type")
    if len(x) != len(y):
        raise ValueError(f"cannot multiply {len(x)} elements by {len(y)}: both factors need one length")
    return x, y


def widened(x: np.ndarray) -> np.ndarray:
    """A vector in the type of its accumulator, without loss; `x` itself if it has that type."""
    return x.astype(accumulator(x.dtype), copy=False)


def terms(x, y=None) -> tuple[np.ndarray, np.ndarray | None, str]:
    """(x, y or None, name of the type), as C++ takes them: the elements of `x`, or the factors of products.

    Elements of 16 bits become uint16. Raises as `vectors`.
    """
    x, y = (vector(x), None) if y is None else vectors(x, y)
    name = element(x.dtype)
    if x.dtype.itemsize == 2:
        x, y = x.view(np.uint16), y if y is None else y.view(np.uint16)
    return x, y, name
