"""Arrays in host or device memory. MPI, traces and files see host memory only.

Messages go through the host, so that the MPI library need not be CUDA-aware.
"""

import math

import numpy as np


def host(array) -> np.ndarray:
    """A NumPy array itself; for a device array a copy in host memory, after waiting for the device."""
    return array if isinstance(array, np.ndarray) else array.get()


def put(target, values: np.ndarray) -> None:
    """target[...] = values, from host memory to the memory of `target`."""
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
