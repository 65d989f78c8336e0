"""Sums and dot products on a GPU, in CUDA C++ (kernels/cuda/sums.cu) or by CuPy's own libraries.

Arrays are CuPy's, one-dimensional, in the memory of one device; strided ones are copied first. float16 and bfloat16
may also come as uint16 arrays that hold their bits, with `dtype` naming the type; CuPy has no bfloat16 of its own.
`block`, `items` and `grid` are those of `kernels.sums.launch.shape` and fix the tree, whatever the device.
"""

from __future__ import annotations

import threading
from functools import cache

import numpy as np

from kernels.cuda import kernel
from kernels.sums import launch
from kernels.sums.elements import ACCUMULATORS, accumulator
from kernels.sums.orders import in_order

ELEMENTS = {"float64": "double", "float32": "float", "float16": "float16", "bfloat16": "bfloat16"}  # in C++
CAPABILITY = 60  # the first with atomic additions of float64


def missing() -> str | None:
    """Why no sum can run on a GPU here, or None."""
    try:
        import cupy
    except ImportError as error:
        return f"{error}; pip install cupy-cuda12x or cupy-cuda13x, as the driver is"
    try:
        if not cupy.cuda.runtime.getDeviceCount():
            return "no CUDA device is visible to this process (see CUDA_VISIBLE_DEVICES)"
        found = "" if cupy.cuda.runtime.is_hip else cupy.cuda.Device().compute_capability
    except Exception as error:  # whatever the driver or its absence raises
        return f"CUDA cannot be used: {error}"
    if found and int(found) < CAPABILITY:
        return f"the device has compute capability {found[:-1]}.{found[-1]}; atomic additions of float64 need 6.0"
    return None


# ---- orders that follow the launch shape


@in_order("ao", "sum", backend="cupy", available=missing)
def ao(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """Every element by one `atomicAdd`: not fixed, the hardware serves them as they come."""
    return _number(queue("sum", "ao", (x,), block, items, grid, dtype))


@in_order("spa", "sum", backend="cupy", available=missing)
def spa(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """A tree in each block, then one `atomicAdd` per block: not fixed, blocks end as they are scheduled."""
    return _number(queue("sum", "spa", (x,), block, items, grid, dtype))


@in_order("sptr", "sum", backend="cupy", available=missing)
def sptr(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """A tree in each block, the same tree over the blocks by the last to end: fixed by length and launch shape."""
    return _number(queue("sum", "sptr", (x,), block, items, grid, dtype))


@in_order("sprg", "sum", backend="cupy", available=missing)
def sprg(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """A tree in each block, added left to right by the last to end: fixed by length and launch shape."""
    return _number(queue("sum", "sprg", (x,), block, items, grid, dtype))


@in_order("tprc", "sum", backend="cupy", available=missing)
def tprc(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """A tree in each block, added left to right by the host: fixed by length and launch shape."""
    partial = queue("sum", "tprc", (x,), block, items, grid, dtype).get()
    with np.errstate(all="ignore"):
        return np.cumsum(partial)[-1]


@in_order("sp-pairwise", "sum", backend="cupy", available=missing)
def sp_pairwise(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """A tree in each block, an aligned binary tree by the last to end: fixed by length and launch shape."""
    return _number(queue("sum", "sp-pairwise", (x,), block, items, grid, dtype))


@in_order("sp-neumaier", "sum", backend="cupy", available=missing)
def sp_neumaier(x, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """A tree in each block, Neumaier's sum by the last to end: fixed by length and launch shape."""
    return _number(queue("sum", "sp-neumaier", (x,), block, items, grid, dtype))


@in_order("spa", "dot", backend="cupy", available=missing)
def dot_spa(x, y, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """As the sum: not fixed, blocks end as they are scheduled."""
    return _number(queue("dot", "spa", (x, y), block, items, grid, dtype))


@in_order("sptr", "dot", backend="cupy", available=missing)
def dot_sptr(x, y, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
    """As the sum: fixed by length and launch shape."""
    return _number(queue("dot", "sptr", (x, y), block, items, grid, dtype))


def queue(operation: str, name: str, arrays, block: int, items: int, grid: int, dtype: str = "", out=None):
    """Queue a sum on the current stream: its result on the device, `(1,)` of the accumulator's type.

    For `tprc` the result is the partial sums, `(blocks,)`. `out` takes the result; for `ao` and `spa` it must hold
    +0.0. Raises TypeError and ValueError for arrays, types and shapes that no kernel takes.
    """
    import cupy as xp

    what = f"{operation} {name!r} (cupy)"
    arrays, element = operands(what, arrays, dtype)
    n, number = len(arrays[0]), accumulator(element)
    shape = launch.shape(n, block, items, grid)
    with arrays[0].device:
        if out is None:
            out = xp.zeros(1, number) if name in ("ao", "spa") else xp.empty(1, number)
        partial = xp.empty(shape.blocks, number)
        rest = (out,) if name == "ao" else (partial, ticket(), out)
        run = kernel("sums", f"{operation}_{name.replace('-', '_')}", ELEMENT=ELEMENTS[element])
        shared = shape.block * number.itemsize
        run((shape.blocks,), (shape.block,), (*arrays, n, shape.segment, *rest), shared_mem=shared)
    return partial if name == "tprc" else out


def operands(what: str, arrays, dtype: str) -> tuple[list, str]:
    """The arrays as kernels take them, contiguous and aligned, and the name of their elements' type."""
    import cupy as xp

    types = {_element(what, x, dtype, xp) for x in arrays}
    if len(types) > 1:
        raise TypeError(
            f"{what}: the arrays are of several types, {' and '.join(sorted(types))}; convert one"
        )
    for x in arrays:
        if x.ndim != 1:
            raise ValueError(f"{what}: one dimension is expected, not the shape {x.shape}; see ravel()")
    if len({len(x) for x in arrays}) > 1:
        raise ValueError(f"{what}: the arrays have {' and '.join(str(len(x)) for x in arrays)} elements")
    contiguous = [xp.ascontiguousarray(x) for x in arrays]
    return [x.copy() if x.data.ptr % x.dtype.itemsize else x for x in contiguous], types.pop()


def _element(what: str, x, dtype: str, xp) -> str:
    if not isinstance(x, xp.ndarray):
        raise TypeError(
            f"{what}: expected an array of CuPy, got {type(x)}; cupy.asarray copies it to the device"
        )
    found = x.dtype.name
    if dtype in ("float16", "bfloat16") and found == "uint16":
        return dtype
    if found not in ACCUMULATORS or dtype not in ("", found):
        raise TypeError(
            f"{what}: cannot sum {found}{f' as {dtype}' if dtype else ''}: convert it to one of "
            f"{', '.join(ACCUMULATORS)}, or pass the bits of the last two as uint16 with dtype= naming the type"
        )
    return found


def ticket():
    """An integer in device memory that is 0 between launches: what blocks draw to learn which one ends last.

    One for each stream and thread, because launches that overlap must not share it.
    """
    import cupy as xp

    return _ticket(xp.cuda.Device().id, xp.cuda.get_current_stream().ptr, threading.get_ident())


@cache
def _ticket(device: int, stream: int, thread: int):
    import cupy as xp

    return xp.zeros(1, xp.uint32)


def _number(result) -> np.floating:
    return result.get()[0]
