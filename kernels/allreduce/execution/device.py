"""Contributions and totals in GPU memory: copied through pinned host memory, where the reducer works.

So every ordering has the bits that it has on the host. `library` passes GPU memory to MPI libraries that take it
(`gpu_aware`). All arrays with `__cuda_array_interface__` are accepted (CuPy's, CUDA tensors of torch), and CuPy's are
returned; CuPy is imported for the first of them.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels import _native
from kernels.allreduce.operations import Operation


def is_on_device(array) -> bool:
    """Whether `array` is in GPU memory, by its attributes: nothing is imported."""
    return hasattr(array, "__cuda_array_interface__")


def view(array):
    """An array in GPU memory as a CuPy array, without a copy."""
    try:
        import cupy
    except ImportError as error:
        raise RuntimeError(
            f"arrays in GPU memory need CuPy ({error}): pip install cupy-cuda12x or cupy-cuda13x, to match the driver, "
            "or pass arrays in host memory"
        ) from error
    return cupy.asarray(array)


def require_out(reducer: str, out, like: np.ndarray) -> None:
    """Raises ValueError unless `out` can hold a total like `like` of contributions in GPU memory."""
    if not is_on_device(out):
        what = (
            f"{out.dtype} {out.shape} in host memory" if isinstance(out, np.ndarray) else type(out).__name__
        )
    else:
        out = view(out)
        if (out.dtype, out.shape) == (like.dtype, like.shape) and out.flags.c_contiguous:
            return
        what = f"{out.dtype} {out.shape} in GPU memory"
        what += "" if out.flags.c_contiguous else ", not contiguous"
    raise ValueError(
        f"{reducer}: contributions are in GPU memory and out is {what}: expected a C-contiguous {like.dtype} array "
        f"{like.shape} in GPU memory"
    )


class Staging:
    """Host copies for a reducer whose caller has its arrays in GPU memory. `like`: the total on the host.

    Copies use the current stream of the array's device, and are awaited both ways: MPI reads host memory outside of all
    streams, and the caller may read the total on another stream.
    """

    def __init__(self, like: np.ndarray):
        self._rows = np.empty(0, like.dtype)
        self._total = pinned(like.shape, like.dtype)
        self._on_device = None
        self._out = None

    def take(self, contributions, out) -> tuple[np.ndarray, np.ndarray]:
        """Returns a host copy of `contributions` (k, *shape), and memory for the total that `give` copies back."""
        import cupy

        if self._rows.size < contributions.size:
            self._rows = pinned((contributions.size,), contributions.dtype)
        rows = self._rows[: contributions.size].reshape(contributions.shape)
        with contributions.device:
            if rows.size:
                stream = cupy.cuda.get_current_stream()
                cupy.ascontiguousarray(contributions).get(stream=stream, out=rows)
                stream.synchronize()
            if out is None and (
                self._on_device is None or self._on_device.device.id != contributions.device.id
            ):
                self._on_device = cupy.empty(self._total.shape, self._total.dtype)
        self._out = self._on_device if out is None else out
        return rows, self._total

    def give(self, total: np.ndarray | None):
        """Copies `total`, the memory from `take` or a part of it, to the same place of `out` on the device."""
        import cupy

        out, self._out = self._out, None
        if total is None:
            return None
        place = view(out)
        if total.shape != place.shape:
            first = (_native.address(total) - _native.address(self._total)) // total.itemsize
            place = out = place.reshape(-1)[first : first + total.size].reshape(total.shape)
        if total.size:
            with place.device:
                stream = cupy.cuda.get_current_stream()
                place.set(total, stream=stream)
                stream.synchronize()
        return out


class Direct:
    """As `Staging`, for an MPI library that takes GPU memory; combines a rank's contributions there."""

    def __init__(self, operation: Operation):
        self._operation = operation
        self._own: Any = None  # arrays of CuPy
        self._total: Any = None
        self._out: Any = None

    def take(self, contributions, out):
        """Returns this rank's contributions, combined to (1, *shape), and memory for the total that `give` returns."""
        import cupy

        with contributions.device:
            if self._own is None or self._own.device.id != contributions.device.id:
                self._own, self._total = (
                    cupy.empty((1, *contributions.shape[1:]), contributions.dtype) for _ in "ab"
                )
            own = self._own[0, ...]
            own[...] = contributions[0, ...] if len(contributions) else self._operation.identity(own.dtype)
            for i in range(1, len(contributions)):
                self._operation.function(own, contributions[i, ...], own)
            cupy.cuda.get_current_stream().synchronize()  # the library reads outside of all streams
        self._out = self._total[0, ...] if out is None else out
        return self._own, view(self._out)

    def give(self, total):
        out, self._out = self._out, None
        return out


def pinned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An uninitialised array in pinned host memory, which a device reads and writes directly."""
    import cupy

    nbytes = math.prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory = cupy.cuda.alloc_pinned_memory(nbytes)
    return np.frombuffer(memory, np.uint8, nbytes).view(dtype).reshape(shape)
