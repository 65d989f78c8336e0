"""Arrays in host or device memory. MPI, traces and files see host memory only.

Messages are copied through the host because a CUDA-aware MPI library is not taken for granted.
"""

import math

import numpy as np


def host(array) -> np.ndarray:
    """The array itself if it is NumPy's, else a copy in host memory; waits for the device then."""
    return array if isinstance(array, np.ndarray) else array.get()


def put(target, values: np.ndarray) -> None:
    """target[...] = values, from host memory to wherever target lies."""
    if isinstance(target, np.ndarray):
        target[...] = values
    else:
        import cupy

        target[...] = cupy.asarray(values)


def staging(xp, shape: tuple[int, ...], dtype=np.float64) -> np.ndarray:
    """An uninitialised array in host memory, pinned for fast copies if `xp` is CuPy."""
    if xp is np or 0 in shape:
        return np.empty(shape, dtype)
    count = math.prod(shape)
    memory = xp.cuda.alloc_pinned_memory(np.dtype(dtype).itemsize * count)
    return np.frombuffer(memory, dtype, count).reshape(shape)
