"""Scatter-adds on a GPU, in CUDA C++ (kernels/cuda/scatter.cu).

`x` and `index` are arrays of CuPy on one device; strided ones are copied first. float16 and bfloat16 may also be given
as uint16 arrays with their bits, with `dtype` naming the type. The result is an array of CuPy on the same device. The
device checks the index before it adds.
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

INDICES = {"int32": "int", "int64": "long long"}  # {dtype: type in C++}
THREADS = 256
BLOCKS = 1 << 14  # at most; threads then take several elements each
EXACT_ROWS = 1 << 30  # rows, at most, between two carries of the words
SCRATCH = 1 << 28  # bytes of superaccumulators at once; for more cells the input is read several times


@in_order("atomic", backend="cupy", available=missing)
def atomic(x, index, bins: int, dtype=""):
    """One `atomicAdd` per element: the hardware chooses the order, so it is not fixed."""
    return queue_atomic(checked("atomic", x, index, bins, dtype))


@in_order("sorted", backend="cupy", available=missing)
def ordered(x, index, bins: int, dtype=""):
    """A stable sort of the places by bin, then one thread per cell adds them by ascending place: the input alone fixes
    the order.

    The bits are those of `reference`. One thread adds a bin, slowly if the bin has much of the input.
    """
    return queue_sorted(checked("sorted", x, index, bins, dtype))


@in_order("exact", backend="cupy", available=missing)
def exact(x, index, bins: int, dtype=""):
    """A superaccumulator per cell, by integer atomics: one rounding at the end.

    Takes 536 bytes per cell for float64, 80 for narrower types; above 256 MiB it makes several passes.
    """
    return queue_exact(checked("exact", x, index, bins, dtype))


@dataclass(frozen=True)
class OnDevice:
    """A checked scatter-add: types and shapes fit, and the index is in range."""

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
        """Queues a kernel for `count` pieces of work, if there are any."""
        if count:
            macros = {"ELEMENT": ELEMENTS[self.element], "INDEX": INDICES[self.index.dtype.name]}
            blocks = min(BLOCKS, -(-count // THREADS))
            kernel("scatter", name, **macros)((blocks,), (THREADS,), arguments)

    def result(self, sums):
        """The flat sums, reshaped to the result."""
        return sums.reshape(self.bins, *self.x.shape[1:])


def checked(name: str, x, index, bins: int, dtype: str = "") -> OnDevice:
    """Checks the arguments of variant `name`; waits for the device to check the index.

    Raises TypeError and ValueError for types and shapes that do not fit, IndexError for the first index outside
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
    """Queues `atomic` on the current stream; returns the result on the device."""
    import cupy as xp

    with s.x.device:
        out = xp.zeros(s.cells, s.number)
        s.launch("scatter_atomic", s.rows * s.columns, s.x, s.index, s.rows, s.columns, out)
    return s.result(out)


def queue_sorted(s: OnDevice):
    """Queues `sorted` on the current stream; returns the result on the device."""
    import cupy as xp

    with s.x.device:
        out, starts = xp.empty(s.cells, s.number), xp.empty(s.bins + 1, xp.int64)
        order = xp.argsort(s.index).astype(xp.int64) if s.rows else s.index  # stable in CuPy
        s.launch("segment_starts", s.rows + 1, s.index, order, s.rows, s.bins, starts)
        s.launch("scatter_sorted", s.cells, s.x, order, starts, s.bins, s.columns, out)
    return s.result(out)


def queue_exact(s: OnDevice, scratch: int = SCRATCH):
    """Queues `exact` on the current stream; returns the result on the device. `scratch`: bytes of accumulators."""
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
    """(start, length) of consecutive parts of `count` elements, each of `at_most` or fewer."""
    return [(start, min(at_most, count - start)) for start in range(0, count, at_most)]
