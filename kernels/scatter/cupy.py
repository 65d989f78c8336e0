"""Scatter-adds on a GPU, in CUDA C++ (kernels/cuda/scatter.cu).

`x` and `index` are CuPy's arrays in the memory of one device; strided ones are copied first. float16 and bfloat16 may
also come as uint16 arrays that hold their bits, with `dtype` naming the type. The result is CuPy's, on that device.
The index is checked there before anything is added.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernels.cuda import kernel
from kernels.scatter.elements import check, out_of_range
from kernels.scatter.orders import in_order
from kernels.sums.cupy import ELEMENTS, missing, plain, type_name
from kernels.sums.elements import accumulator

if TYPE_CHECKING:
    import cupy

INDICES = {"int32": "int", "int64": "long long"}  # in C++
THREADS = 256
BLOCKS = 1 << 14  # at most; threads then take several elements each
EXACT_ROWS = 1 << 30  # what words take before they must be carried
SCRATCH = 1 << 28  # bytes of superaccumulators at once: more cells take more passes over the input


@in_order("atomic", backend="cupy", available=missing)
def atomic(x, index, bins: int, dtype=""):
    """One `atomicAdd` per element: not fixed, the hardware serves them as they come."""
    return queue_atomic(checked("atomic", x, index, bins, dtype))


@in_order("sorted", backend="cupy", available=missing)
def ordered(x, index, bins: int, dtype=""):
    """A stable sort of the places by bin, then one thread per cell adds them by ascending place: fixed by the input.

    The bits of `reference`. A bin that holds much of the input is added by one thread, and slowly.
    """
    return queue_sorted(checked("sorted", x, index, bins, dtype))


@in_order("exact", backend="cupy", available=missing)
def exact(x, index, bins: int, dtype=""):
    """A superaccumulator per cell, by integer atomics: one rounding at the end.

    For float64 it takes 536 bytes per cell, for narrower types 80; above 256 MiB several passes are made.
    """
    return queue_exact(checked("exact", x, index, bins, dtype))


@dataclass(frozen=True)
class OnDevice:
    """A scatter-add that fits, its index in range."""

    x: cupy.ndarray  # (n,) or (n, columns)
    index: cupy.ndarray  # (n,) int32 or int64
    bins: int
    element: str

    @property
    def rows(self) -> int:
        return len(self.index)

    @property
    def columns(self) -> int:
        return self.x.shape[1] if self.x.ndim == 2 else 1

    @property
    def cells(self) -> int:
        return self.bins * self.columns

    @property
    def number(self) -> np.dtype:
        return accumulator(self.element)

    def launch(self, name: str, count: int, *arguments) -> None:
        """Queue a kernel for `count` pieces of work; nothing for none."""
        if count:
            macros = {"ELEMENT": ELEMENTS[self.element], "INDEX": INDICES[self.index.dtype.name]}
            blocks = min(BLOCKS, -(-count // THREADS))
            kernel("scatter", name, **macros)((blocks,), (THREADS,), arguments)

    def result(self, sums):
        """The flat sums in the shape of the result."""
        return sums.reshape(self.bins, *self.x.shape[1:])


def checked(name: str, x, index, bins: int, dtype: str = "") -> OnDevice:
    """The scatter-add of variant `name`, checked, which waits for the device.

    Raises TypeError and ValueError for types and shapes that do not fit, IndexError for the first index that is not in
    [0, bins).
    """
    import cupy as xp

    what = f"scatter_add {name!r} (cupy)"
    for array in (x, index):
        if not isinstance(array, xp.ndarray):
            raise TypeError(
                f"{what}: expected arrays of CuPy, got {type(array)}; cupy.asarray copies one to the device"
            )
    element = type_name(x, dtype)
    check(element, x.shape, index.dtype.name, index.shape, bins, name, "cupy")
    with x.device:
        scatter = OnDevice(plain(x), plain(index), int(bins), element)
        first = xp.asarray(np.array([scatter.rows], np.uint64))
        scatter.launch("check_index", scatter.rows, scatter.index, scatter.rows, scatter.bins, first)
        place = int(first.get()[0])
        if place < scatter.rows:
            raise out_of_range(int(scatter.index[place]), place, scatter.bins)
    return scatter


def queue_atomic(s: OnDevice):
    """Queue `atomic` on the current stream; the result on the device."""
    import cupy as xp

    with s.x.device:
        out = xp.zeros(s.cells, s.number)
        s.launch("scatter_atomic", s.rows * s.columns, s.x, s.index, s.rows, s.columns, out)
    return s.result(out)


def queue_sorted(s: OnDevice):
    """Queue `sorted` on the current stream; the result on the device."""
    import cupy as xp

    with s.x.device:
        out, starts = xp.empty(s.cells, s.number), xp.empty(s.bins + 1, xp.int64)
        order = xp.argsort(s.index).astype(xp.int64) if s.rows else s.index  # stable in CuPy
        s.launch("segment_starts", s.rows + 1, s.index, order, s.rows, s.bins, starts)
        s.launch("scatter_sorted", s.cells, s.x, order, starts, s.bins, s.columns, out)
    return s.result(out)


def queue_exact(s: OnDevice, scratch: int = SCRATCH):
    """Queue `exact` on the current stream; the result on the device. `scratch`: bytes of superaccumulators at once."""
    import cupy as xp

    with s.x.device:
        out = xp.empty(s.cells, s.number)
        per_cell = 67 if s.number == np.float64 else 10
        for first, cells in parts(s.cells, max(1, scratch // (8 * per_cell))):
            words, flags = xp.zeros((cells, per_cell), xp.int64), xp.zeros(cells, xp.uint32)
            for start, rows in parts(s.rows, EXACT_ROWS):
                x, index = s.x[start : start + rows], s.index[start : start + rows]
                if start:
                    s.launch("carry_exact", cells, words, cells)
                s.launch("scatter_exact", x.size, x, index, rows, s.columns, first, cells, words, flags)
            s.launch("round_exact", cells, words, flags, cells, out[first : first + cells])
    return s.result(out)


def parts(count: int, at_most: int):
    """(start, length) of consecutive parts."""
    return [(start, min(at_most, count - start)) for start in range(0, count, at_most)]
