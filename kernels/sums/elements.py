"""What may be summed, what it is accumulated in, and how it is handed to C++."""

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
    """The type in which elements of `dtype` are added up, which is also that of their sum.

    float64 for float64, float32 for float32, float16 and bfloat16. Raises TypeError for other types.
    """
    return ACCUMULATORS[element(dtype)]


def vector(x) -> np.ndarray:
    """`x` (n,) as kernels want it: contiguous, aligned, of native byte order; copied where it is not.

    Copying first means that the order of additions goes by the index alone. Raises TypeError for an unknown
    element type, ValueError for another number of dimensions than one.
    """
    x = np.asarray(x)
    element(x.dtype)
    if x.ndim != 1:
        raise ValueError(f"cannot sum an array of shape {x.shape}: one dimension is expected, see ravel()")
    if x.flags.c_contiguous and x.flags.aligned and x.dtype.isnative:
        return x
    return np.require(x, dtype=x.dtype.newbyteorder("="), requirements=["C", "A"])


def vectors(x, y) -> tuple[np.ndarray, np.ndarray]:
    """The factors of a dot product, each as `vector` gives it.

    Raises as `vector`, and TypeError for two types, ValueError for two lengths.
    """
    x, y = vector(x), vector(y)
    if x.dtype != y.dtype:
        raise TypeError(f"cannot multiply {x.dtype} by {y.dtype}: convert both factors to one type")
    if len(x) != len(y):
        raise ValueError(f"cannot multiply {len(x)} elements by {len(y)}: both factors need one length")
    return x, y


def widened(x: np.ndarray) -> np.ndarray:
    """A vector in the type of its accumulator, which holds all its values; itself where it has that type."""
    return x.astype(accumulator(x.dtype), copy=False)


def terms(x, y=None) -> tuple[np.ndarray, np.ndarray | None, str]:
    """What C++ adds up, as it takes it: the elements of `x` or, where there is a `y`, the products of both.

    Elements of 16 bits go as uint16, with the name of their type. Raises as `vectors`.
    """
    x, y = (vector(x), None) if y is None else vectors(x, y)
    name = element(x.dtype)
    if x.dtype.itemsize == 2:
        x, y = x.view(np.uint16), y if y is None else y.view(np.uint16)
    return x, y, name
