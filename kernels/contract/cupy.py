"""Products on a GPU, in CUDA C++ (kernels/cuda/contract.cu): the bits of `native`.

Operands are arrays of CuPy on one device; arrays with gaps are copied first. The result is a new array; a call returns
when its work is queued on the current stream. Tables, made on the host, contain the offsets of elements.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Unpack

import numpy as np

from kernels.contract import shapes
from kernels.contract.promises import promised
from kernels.contract.shapes import Moves, Shape, Window
from kernels.cuda import kernel
from kernels.sums.cupy import missing, plain

if TYPE_CHECKING:
    import cupy

NUMBERS = {"float64": "double", "float32": "float"}  # {dtype: type in C++}
TILE, THREADS = 64, 256  # as in kernels/cuda/contract.cu
BLOCKS = 1 << 20  # at most; a block then has several tiles


@promised("matmul", "own", backend="cupy", available=missing)
def matmul(a: cupy.ndarray, b: cupy.ndarray) -> cupy.ndarray:
    """c[i, j] = the sum over k, ascending, of a[i, k] b[k, j], leading dims broadcast: one thread adds an element."""
    a, b = operands("matmul", a=a, b=b)
    shape = shapes.product(a.shape, b.shape)
    (rows, depth), columns = a.shape[-2:], b.shape[-1]
    c = new(a, shape)
    _multiply(
        a, (_batches(a.shape, shape), _grid((rows, depth)), _grid((depth, 1))),
        b, (_batches(b.shape, shape), _grid((columns, 1)), _grid((depth, columns))),
        c, (_grid((math.prod(shape[:-2]), rows * columns)), _grid((rows, columns)), _grid((columns, 1))),
    )  # fmt: skip
    return c


@promised("conv", "own", backend="cupy", available=missing)
def conv(x: cupy.ndarray, w: cupy.ndarray, **moves: Unpack[Moves]) -> cupy.ndarray:
    """As `native`: channels and places of the window, ascending; zeros outside count as terms."""
    x, w = operands("conv", x=x, w=w)
    of, shape = shapes.convolution(x.shape, w.shape, moves)
    outputs, channels = w.shape[0] // of.groups, w.shape[1]
    y, image = new(x, shape), _Padded(x, *_reach(of, _taps(of), of.stride, shape[2:], x.shape[2:]))
    depth, points = channels * math.prod(of.size), math.prod(shape[2:])
    _multiply(
        w, (_grid((of.groups, outputs * depth)), _grid((outputs, depth)), _grid((depth, 1))),
        image.array, (_grid((of.groups, channels * image.channel)), image.positions(shape, of.stride),
                      image.elements(channels, _taps(of))),
        y, (_grid((of.groups, outputs * points)), _grid((outputs, points)),
            _grid((shape[0], shape[1] * points), (points, 1))),
    )  # fmt: skip
    return y


@promised("conv_input", "own", backend="cupy", available=missing)
def conv_input(
    gradient: cupy.ndarray, w: cupy.ndarray, size: Sequence[int], **moves: Unpack[Moves]
) -> cupy.ndarray:
    """As `native`: output channels and the places of the window that cover an element, ascending.

    Elements that the same places cover are `stride` apart; they are the columns of one product.
    """
    y, w = operands("conv_input", gradient=gradient, w=w)
    of, shape = shapes.input_gradient(y.shape, w.shape, size, moves)
    inputs, outputs, window = w.shape[1], w.shape[0] // of.groups, math.prod(of.size)
    x, points = new(y, shape), math.prod(shape[2:])
    step = _strides(shape[2:])
    for first in product(*map(range, of.stride)):
        counts = tuple(max(0, -(-(n - f) // s)) for n, f, s in zip(size, first, of.stride, strict=True))
        whole = (np.array(first) - _taps(of)) % of.stride == 0
        numbers = np.nonzero(whole.all(axis=1))[0]
        taps = (np.array(first) - _taps(of)[numbers]) // of.stride
        ones = (1,) * len(of.size)
        image = _Padded(y, *_reach(of, taps, ones, counts, y.shape[2:]))
        places = _sum(np.arange(outputs) * inputs * window, numbers)
        _multiply(
            w, (_grid((of.groups, outputs * inputs * window)), _grid((inputs, window)), places),
            image.array, (_grid((of.groups, outputs * image.channel)), image.positions((shape[0], 0, *counts), ones),
                          image.elements(outputs, taps)),
            x, (_grid((of.groups, inputs * points)), _grid((inputs, points)),
                _sum(np.arange(shape[0]) * shape[1] * points,
                     _grid(*((n, s * t) for n, s, t in zip(counts, of.stride, step, strict=True)))
                     + int(np.dot(first, step)))),
        )  # fmt: skip
    return x


@promised("conv_weight", "own", backend="cupy", available=missing)
def conv_weight(
    x: cupy.ndarray, gradient: cupy.ndarray, size: Sequence[int], **moves: Unpack[Moves]
) -> cupy.ndarray:
    """As `native`: samples and positions of the output, ascending."""
    x, y = operands("conv_weight", x=x, gradient=gradient)
    of, shape = shapes.weight_gradient(x.shape, y.shape, size, moves)
    outputs, channels = shape[0] // of.groups, shape[1]
    points, depth = math.prod(y.shape[2:]), channels * math.prod(of.size)
    image = _Padded(x, *_reach(of, _taps(of), of.stride, y.shape[2:], x.shape[2:]))
    w = new(x, shape)
    _multiply(
        y, (_grid((of.groups, outputs * points)), _grid((outputs, points)),
            _grid((y.shape[0], y.shape[1] * points), (points, 1))),
        image.array, (_grid((of.groups, channels * image.channel)), image.elements(channels, _taps(of)),
                      image.positions(y.shape, of.stride)),
        w, (_grid((of.groups, outputs * depth)), _grid((outputs, depth)), _grid((depth, 1))),
    )  # fmt: skip
    return w


# ---- offsets of elements


def _sum(*tables: np.ndarray) -> np.ndarray:
    """All sums of one element from each table; the last table varies fastest."""
    total = np.zeros(1, np.int64)
    for table in tables:
        total = (total[:, None] + np.asarray(table, np.int64)).reshape(-1)
    return total


def _grid(*dims: tuple[int, int]) -> np.ndarray:
    """Offsets in a grid of dims (length, step); the last dim varies fastest."""
    return _sum(*(np.arange(n) * step for n, step in dims))


def _strides(shape: Shape) -> tuple[int, ...]:
    """Strides of a contiguous array, in elements."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _batches(shape: Shape, whole: Shape) -> np.ndarray:
    """Offsets of the matrices of a contiguous operand, for all leading dims of the result."""
    lead = (1,) * (len(whole) - len(shape)) + shape
    steps = _strides(lead)
    return _grid(*((n, steps[d] if lead[d] > 1 else 0) for d, n in enumerate(whole[:-2])))


def _taps(of: Window) -> np.ndarray:
    """The points of an image that the window sees at position 0: (places of the window, dims)."""
    lows = [low for low, _ in of.padding]
    return np.array(list(np.ndindex(*of.size))).reshape(-1, len(of.size)) * of.dilation - lows


def _reach(of: Window, taps: np.ndarray, stride: Shape, positions: Shape, size: Shape) -> tuple[Shape, Shape]:
    """The zeros that the window reads before and after images of this size, by these taps from these positions."""
    if not len(taps) or 0 in positions:
        return (0,) * len(size), (0,) * len(size)
    last = taps.max(axis=0) + (np.array(positions) - 1) * stride - (np.array(size) - 1)
    return tuple(np.maximum(0, -taps.min(axis=0)).tolist()), tuple(np.maximum(0, last).tolist())


class _Padded:
    """Images with zeros around them."""

    def __init__(self, x: cupy.ndarray, low: Shape, high: Shape):
        import cupy as xp

        self.size = tuple(a + n + b for a, n, b in zip(low, x.shape[2:], high, strict=True))
        self.low, self.step, self.channel = low, _strides(self.size), math.prod(self.size)
        self.sample = x.shape[1] * self.channel
        self.array = x
        if self.size != x.shape[2:]:
            self.array = xp.zeros((*x.shape[:2], *self.size), x.dtype)
            inner = tuple(slice(a, a + n) for a, n in zip(low, x.shape[2:], strict=True))
            self.array[(slice(None), slice(None), *inner)] = x

    def positions(self, shape: Shape, stride: Shape) -> np.ndarray:
        """Offsets of windows, for all samples and positions of an output of this shape."""
        dims = ((n, s * t) for n, s, t in zip(shape[2:], stride, self.step, strict=True))
        return _grid((shape[0], self.sample), *dims)

    def elements(self, channels: int, taps: np.ndarray) -> np.ndarray:
        """Offsets inside a window, by channel and tap."""
        return _sum(np.arange(channels) * self.channel, (taps + self.low) @ np.array(self.step, np.int64))


# ---- launches


def operands(what: str, **arrays: cupy.ndarray) -> list[cupy.ndarray]:
    """Returns the operands as contiguous arrays; raises TypeError unless they are arrays of CuPy, of one type."""
    import cupy as xp

    for name, x in arrays.items():
        if not isinstance(x, xp.ndarray):
            raise TypeError(
                f"{what} (cupy): {name} is {type(x).__name__}; cupy.asarray copies an array to the device"
            )
        if x.dtype.name not in NUMBERS:
            raise TypeError(f"{what}: {name} is of {x.dtype}: convert it to one of {', '.join(NUMBERS)}")
    types = {x.dtype.name for x in arrays.values()}
    if len(types) > 1:
        raise TypeError(
            f"{what}: operands are of {' and '.join(sorted(types))}: convert one to the type of the other"
        )
    return [plain(x) for x in arrays.values()]


def new(like: cupy.ndarray, shape: Shape) -> cupy.ndarray:
    import cupy as xp

    with like.device:
        return xp.empty(shape, like.dtype)


def _multiply(a, a_where, b, b_where, c, c_where) -> None:
    """Queues products. `a_where`, `b_where`: tables of offsets by batch, row or column, and k; `c_where`: by batch, row
    and column."""
    import cupy as xp

    batches, rows, columns, depth = len(c_where[0]), len(c_where[1]), len(c_where[2]), len(a_where[2])
    tiles = batches * -(-rows // TILE) * -(-columns // TILE)
    if not tiles:
        return
    with c.device:
        tables = [
            [xp.asarray(np.append(table, 0)) for table in where] for where in (a_where, b_where, c_where)
        ]
        run = kernel("contract", "contract_multiply", NUMBER=NUMBERS[c.dtype.name])
        arguments = (batches, rows, columns, depth, a, *tables[0], b, *tables[1], c, *tables[2])
        run((min(BLOCKS, tiles),), (THREADS,), arguments)
