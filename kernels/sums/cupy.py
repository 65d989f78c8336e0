"""Sums and dot products on a GPU, in CUDA C++ (kernels/cuda) or by CuPy's own libraries.

Arrays are one-dimensional, of CuPy, on one device; strided ones are copied first. float16 and bfloat16 may also be
given as uint16 arrays with their bits, with `dtype` naming the type; CuPy has no bfloat16. `block`, `items` and `grid`
(see `kernels.sums.launch.shape`) fix the tree on every device; they do not change the bits of order-free sums.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kernels.cuda import kernel
from kernels.exact.reference import CHUNKS, LOWEST, NAN, NINF, PINF, WORDS, nearest
from kernels.sums import launch
from kernels.sums.elements import ACCUMULATORS, accumulator
from kernels.sums.orders import in_order

if TYPE_CHECKING:
    import cupy

ELEMENTS = {
    "float64": "double",
    "float32": "float",
    "float16": "float16",
    "bfloat16": "bfloat16",
}  # {dtype: type in C++}
CAPABILITY = 60  # the lowest with atomic additions of float64
ORDER_FREE_ITEMS = 32  # elements per thread, at least: the end of a thread costs more here
MOST_ITEMS = 1024  # of one thread; more could overflow its sums
CHUNK_UNIT = -1074  # of the superaccumulator on the device: chunk i counts multiples of 2**(32 i - 1074)
NOT_A_NUMBER, PLUS_INF, MINUS_INF, INFINITIES = 1, 2, 4, 6  # flags


def missing() -> str | None:
    """The reason why sums cannot run on a GPU here, or None."""
    try:
        import cupy
    except ImportError as error:
        return f"{error}; pip install cupy-cuda12x or cupy-cuda13x, to match the driver"
    try:
        if not cupy.cuda.runtime.getDeviceCount():
            return "no CUDA device is visible to this process (see CUDA_VISIBLE_DEVICES)"
        capability = "" if cupy.cuda.runtime.is_hip else cupy.cuda.Device().compute_capability
    except Exception as error:  # whatever the driver or its absence raises
        return f"CUDA cannot be used: {error}"
    if capability and int(capability) < CAPABILITY:
        has = f"{capability[:-1]}.{capability[-1]}"
        return f"the device has compute capability {has}; atomic additions of float64 need 6.0"
    return None


# ---- orders that follow the launch shape


def _register(name: str, *operations: str) -> None:
    """Registers an order of `kernels.sums.orders`, which says what it is and whether it is fixed."""

    @in_order(name, *operations, backend="cupy", available=missing)
    def launched(x, y=None, block=launch.BLOCK, items=launch.ITEMS, grid=launch.GRID, dtype=""):
        """The sum of x, or of its products with y, by one launch; the launch shape fixes the order."""
        result = queue(name, *_terms(x, y), block, items, grid, dtype).get()
        with np.errstate(all="ignore"):
            return np.cumsum(result)[-1] if name == "tprc" else result[0]  # by the host, left to right


_register("ao", "sum")
_register("spa", "sum", "dot")
_register("sptr", "sum", "dot")
_register("sprg", "sum")
_register("tprc", "sum")
_register("sp-pairwise", "sum")
_register("sp-neumaier", "sum")


# ---- orders of CuPy's libraries


@in_order("cu", "sum", "dot", backend="cupy", available=missing)
def cu(x, y=None, dtype=""):
    """`cupy.sum` with CUB, or `cupy.dot`, which is cuBLAS: documented to repeat on one device or model of device.

    float16 and bfloat16 are widened to float32 first.
    """
    operation, arrays = _terms(x, y)
    return cu_queue(operation, arrays, dtype).get()[()]


def cu_queue(operation: str, arrays, dtype: str = ""):
    """Queues CuPy's own `sum` or `dot`; returns its result on the device, without dimensions. Raises as `queue`."""
    import cupy as xp

    arrays, element = operands(f"{operation} 'cu' (cupy)", arrays, dtype)
    with arrays[0].device:
        arrays = [_widened(x, element, xp) for x in arrays]
        if operation == "dot":
            return xp.dot(*arrays)
        before = xp._core.get_routine_accelerators()
        xp._core.set_routine_accelerators(["cub"])
        try:
            return xp.sum(*arrays)
        finally:
            xp._core.set_routine_accelerators(before)


def _widened(x, element: str, xp):
    if element == "bfloat16":
        return (x.view(xp.uint16).astype(xp.uint32) << 16).view(xp.float32)
    return x.view(xp.float16).astype(xp.float32) if element == "float16" else x


# ---- order-free


def _register_order_free(name: str) -> None:
    """Registers an order-free sum. Dot products add both parts of TwoProduct, which are exact from 2**-969 on."""

    @in_order(name, "sum", "dot", backend="cupy", available=missing)
    def order_free(x, y=None, block=launch.BLOCK, items=ORDER_FREE_ITEMS, grid=launch.GRID, dtype=""):
        """The sum of x, or of its products with y, in integers, whose sum is the same in every order."""
        return _rounded(queue_order_free(name, *_terms(x, y), block, items, grid, dtype))


_register_order_free(
    "binned"
)  # one pass: cuts elements in registers, drops pieces that are too low when a larger element comes
_register_order_free("fixed-point")  # two passes; the first finds the largest element, which fixes the unit
_register_order_free("exact")  # as `binned`, but adds the low pieces to a superaccumulator by integer atomics


# ---- launching


def queue(name: str, operation: str, arrays, block: int, items: int, grid: int, dtype: str = "", out=None):
    """Queues a sum on the current stream; returns its result on the device, `(1,)` of the accumulator's type.

    For `tprc` the result is the partial sums, `(blocks,)`. `out` receives the result; for `ao` and `spa` it must be
    +0.0 before. Raises TypeError and ValueError for arrays, types and shapes that no kernel takes.
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
        rest = (out,) if name == "ao" else (partial, _scratch()[0], out)
        run = kernel("sums", f"{operation}_{name.replace('-', '_')}", ELEMENT=ELEMENTS[element])
        shared = shape.block * number.itemsize
        run((shape.blocks,), (shape.block,), (*arrays, n, shape.segment, *rest), shared_mem=shared)
    return partial if name == "tprc" else out


@dataclass(frozen=True)
class Parts:
    """The parts of an order-free sum on the device: int64 `words` as in `Result` of order_free.cu."""

    words: cupy.ndarray
    width: int
    fold: int
    number: np.dtype


def queue_order_free(
    name: str, operation: str, arrays, block: int, items: int, grid: int, dtype: str = ""
) -> Parts:
    """Queues an order-free sum on the current stream. Raises as `queue`."""
    import cupy as xp

    arrays, element = operands(f"{operation} {name!r} (cupy)", arrays, dtype)
    n, number = len(arrays[0]), accumulator(element)
    shape = launch.shape(n, block, min(items, MOST_ITEMS), max(grid, -(-n // (block * MOST_ITEMS))))
    width, fold = (42, number.itemsize // 4) if name == "fixed-point" else (40, 3)
    if (operation, name) == ("dot", "exact") and number == np.float64:
        fold = 5  # as in the source
    with arrays[0].device:
        tickets, chunks = _scratch()
        records = xp.empty(shape.blocks * (2 + fold), xp.int64)
        words = xp.empty(2 + 2 * fold + (CHUNKS if name == "exact" else 0), xp.int64)
        configuration, data = ((shape.blocks,), (shape.block,)), (*arrays, n, shape.segment)
        largest: tuple[cupy.ndarray, ...] = ()
        if name == "fixed-point":
            largest = (xp.zeros(2, xp.uint32),)  # (guess, true value)
            which = "largest_element" if operation == "sum" else "largest_product"
            kernel("order_free", which, ELEMENT=ELEMENTS[element])(*configuration, (*data, *largest))
        run = kernel("order_free", f"{operation}_{name.replace('-', '_')}", ELEMENT=ELEMENTS[element])
        shared = shape.block * 8 * fold
        rest = (records, tickets, chunks, words)
        for how in ((*largest, 0), (*largest, 1)) if name == "fixed-point" else ((),):
            run(*configuration, (*data, *how, *rest), shared_mem=shared)
    return Parts(words, width, fold, number)


def exact_words(operation: str, arrays, dtype: str = "") -> np.ndarray:
    """The sum before rounding, as words of `kernels.exact`: int64 (WORDS,) on the host, which ranks can add up.

    Raises as `queue`.
    """
    parts = queue_order_free("exact", operation, arrays, launch.BLOCK, ORDER_FREE_ITEMS, launch.GRID, dtype)
    flags, total, exponent = _integer(parts)
    shift = exponent - LOWEST
    total = total << shift if shift >= 0 else total >> -shift  # the dropped bits are zero
    words = np.zeros(WORDS, np.int64)
    for i in range(CHUNKS - 1):
        words[i] = total & 0xFFFFFFFF
        total >>= 32
    words[CHUNKS - 1] = total
    words[[NAN, PINF, NINF]] = [bool(flags & flag) for flag in (NOT_A_NUMBER, PLUS_INF, MINUS_INF)]
    return words


def _integer(parts: Parts) -> tuple[int, int, int]:
    """(flags, total, exponent): the sum of the finite numbers is total * 2**exponent."""
    fold = parts.fold
    top, flags, *words = parts.words.get().tolist()
    low, high, chunks = words[:fold], words[fold : 2 * fold], words[2 * fold :]
    total = sum((high[k] << 32) + low[k] << parts.width * (fold - 1 - k) for k in range(fold))
    unit = top - parts.width * fold
    spilled = sum(chunk << 32 * i for i, chunk in enumerate(chunks))
    lowest = min(unit, CHUNK_UNIT)
    return flags, (total << unit - lowest) + (spilled << CHUNK_UNIT - lowest), lowest


def _rounded(parts: Parts) -> np.floating:
    """The sum, rounded once to nearest even; zero is +0.0, NaN and infinities by IEEE rules."""
    flags, total, exponent = _integer(parts)
    number = parts.number.type
    if flags & NOT_A_NUMBER or flags & INFINITIES == INFINITIES:
        return number(np.nan)
    if flags:
        return number(np.inf if flags & PLUS_INF else -np.inf)
    return number(nearest(total, exponent, parts.number))


def operands(what: str, arrays, dtype: str) -> tuple[list, str]:
    """The arrays, contiguous and aligned for kernels, and the name of their element type."""
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
    return [plain(x) for x in arrays], types.pop()


def _element(what: str, x, dtype: str, xp) -> str:
    if not isinstance(x, xp.ndarray):
        raise TypeError(
            f"{what}: expected an array of CuPy, got {type(x)}; cupy.asarray copies it to the device"
        )
    element = type_name(x, dtype)
    if element not in ACCUMULATORS:
        raise TypeError(
            f"{what}: cannot sum {element}: convert it to one of {', '.join(ACCUMULATORS)}, or pass the bits of "
            "float16 and bfloat16 as uint16 with dtype= naming the type"
        )
    return element


def type_name(x, dtype: str = "") -> str:
    """The name of the element type: of the array, or `dtype` for bits in uint16. Other pairs give a name that no kernel
    takes, such as "float64 as bfloat16"."""
    name = x.dtype.name
    if dtype in ("float16", "bfloat16") and name == "uint16":
        return dtype
    return name if dtype in ("", name) else f"{name} as {dtype}"


def plain(x):
    """The array, copied if it is not contiguous and aligned."""
    import cupy as xp

    size = x.dtype.itemsize
    if any(address % size for address in (x.data.ptr, *x.strides)):  # CuPy's own copy fails here: copy bytes
        parts = xp.ndarray((*x.shape, size), xp.uint8, memptr=x.data, strides=(*x.strides, 1))
        return parts.copy().view(x.dtype).reshape(x.shape)
    return xp.ascontiguousarray(x)


def _scratch():
    """(ticket, chunks) in device memory, zero between launches; by the ticket a block knows whether it ends last.

    One pair for each stream and thread, because overlapping launches must not share it.
    """
    import cupy as xp

    return _scratch_of(xp.cuda.Device().id, xp.cuda.get_current_stream().ptr, threading.get_ident())


@cache
def _scratch_of(device: int, stream: int, thread: int):
    import cupy as xp

    return xp.zeros(1, xp.uint32), xp.zeros(CHUNKS, xp.int64)


def _terms(x, y) -> tuple[str, tuple]:
    return ("sum", (x,)) if y is None else ("dot", (x, y))
