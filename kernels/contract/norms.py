"""Layer norm and softmax in C++ by a fixed sequence of operations, each of which rounds once; no library is called.

    y, mean, scale = layer_norm(x, (columns,), weight, bias, 1e-5)
    y = softmax(x, dim, log=True)

Exponential and logarithm are those of attention (kernels/include/exponential.hpp). A row's bits depend on its own
elements alone, and those of the gradients of weight and bias on the order and number of rows: neither on cuts between
rows, nor on the processor. A sum over a row has 16 partial sums: sum t has the elements
t, t + 16, t + 32, ..., from +0.0, and they are joined by halves (t and t + 8, then t and t + 4, ...). A sum over rows
is a chain over 256 rows from +0.0; the sums of such pieces are added in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from kernels import _native
from kernels.contract.native import level_number
from kernels.contract.operands import Array, array_of, like
from kernels.threads import checked


def layer_norm(
    x: Array,
    shape: Sequence[int],
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
    *,
    threads: int = 1,
    level: str | None = None,
) -> tuple[Array, Array, Array]:
    """(y, mean, scale) of x (..., *shape), float32 or float64: y = (x - mean) * scale * weight + bias.

    mean and scale = 1 / sqrt(variance + eps) are (..., 1, ...), of each row of `shape` elements. `threads`: of OpenMP,
    0 for its default; `level`: an instruction set of `kernels.contract.native.LEVELS`. Neither changes bits. Raises
    TypeError for other types, ValueError for other shapes.
    """
    xs, of_row = _rows("x", x, shape)
    given = (_row(name, each, xs, shape) for name, each in (("weight", weight), ("bias", bias)))
    y, mean, scale = (np.empty(like_shape, xs.dtype) for like_shape in (xs.shape, of_row, of_row))
    _native.contract_layer_norm([xs, *given, y, mean, scale], eps, checked(threads), level_number(level))
    return like(y, x), like(mean, x), like(scale, x)


def layer_norm_backward(
    gradient: Array,
    x: Array,
    shape: Sequence[int],
    mean: Array,
    scale: Array,
    weight: Array | None = None,
    wanted: Sequence[bool] = (True, True, True),
    *,
    threads: int = 1,
    level: str | None = None,
) -> tuple[Array | None, Array | None, Array | None]:
    """The gradients of x, weight and bias, those that are `wanted` (None for others), from the gradient of y.

    `mean`, `scale`: of `layer_norm`. With u = (x - mean) * scale and g = gradient * weight, that of x is
    (g - (u * sum(g u) + sum(g)) / n) * scale. Otherwise as `layer_norm`.
    """
    xs, of_row = _rows("x", x, shape)
    slopes, _ = _rows("gradient", gradient, shape)
    if slopes.shape != xs.shape:
        raise ValueError(f"layer_norm: gradient is {slopes.shape}, and x is {xs.shape}")
    rows = [_contiguous(name, each, xs.dtype) for name, each in (("mean", mean), ("scale", scale))]
    for name, each in zip(("mean", "scale"), rows, strict=True):
        if each.shape != of_row:
            raise ValueError(f"layer_norm: {name} is {each.shape}; {of_row} is expected")
    found = [
        np.empty(like_shape, xs.dtype) if needed else None
        for like_shape, needed in zip((xs.shape, tuple(shape), tuple(shape)), wanted, strict=True)
    ]
    arrays = [xs, _row("weight", weight, xs, shape), None, None, *rows, slopes, *found]
    _native.contract_layer_norm(arrays, 0.0, checked(threads), level_number(level))
    of_x, of_weight, of_bias = (None if each is None else like(each, x) for each in found)
    return of_x, of_weight, of_bias


def softmax(
    x: Array, dim: int = -1, log: bool = False, *, threads: int = 1, level: str | None = None
) -> Array:
    """exp(x - m) / sum(exp(x - m)) along a dim, m its largest element; with `log` the logarithm, (x - m) - log(sum).

    x: float32 or float64. A row with a NaN, with +inf, or of -inf alone becomes NaN, as torch's does. `threads` and
    `level` as in `layer_norm`; TypeError and IndexError as there.
    """
    return _softmax("softmax", x, None, dim, log, threads, level)


def softmax_backward(
    gradient: Array, y: Array, dim: int = -1, log: bool = False, *, threads: int = 1, level: str | None = None
) -> Array:
    """The gradient of x from that of y = softmax(x, dim, log): g y - y sum(g y), or with `log` g - exp(y) sum(g)."""
    return _softmax("softmax_backward", y, gradient, dim, log, threads, level)


def _softmax(
    what: str, x: Array, gradient: Array | None, dim: int, log: bool, threads: int, level: str | None
) -> Array:
    xs = array_of(x, what, "x" if gradient is None else "y")
    last = np.ascontiguousarray(np.moveaxis(xs, dim, -1))
    slopes = None
    if gradient is not None:
        given = array_of(gradient, what, "gradient")
        if given.shape != xs.shape or given.dtype != xs.dtype:
            raise ValueError(
                f"{what}: gradient is {given.dtype} {given.shape}, and y is {xs.dtype} {xs.shape}"
            )
        slopes = np.ascontiguousarray(np.moveaxis(given, dim, -1))
    found = np.empty_like(last)
    columns = max(1, last.shape[-1])
    _native.contract_softmax(last, slopes, found, columns, log, checked(threads), level_number(level))
    return like(np.moveaxis(found, -1, dim), x)


def _rows(name: str, x: Array, shape: Sequence[int]) -> tuple[np.ndarray, tuple[int, ...]]:
    """x in contiguous memory, and the shape of one number per row."""
    xs = np.ascontiguousarray(array_of(x, "layer_norm", name))
    last = len(shape)
    if not last or not prod(shape) or xs.shape[-last:] != tuple(shape):
        raise ValueError(
            f"layer_norm: {name} is {xs.shape}, whose last dims are not {tuple(shape)}, of one element or more"
        )
    return xs, (*xs.shape[:-last], *(1,) * last)


def _row(name: str, x: Array | None, like_x: np.ndarray, shape: Sequence[int]) -> np.ndarray | None:
    if x is None:
        return None
    row = _contiguous(name, x, like_x.dtype)
    if row.shape != tuple(shape):
        raise ValueError(f"layer_norm: {name} is {row.shape}; {tuple(shape)} is expected")
    return row


def _contiguous(name: str, x: Array, dtype: np.dtype) -> np.ndarray:
    row = np.ascontiguousarray(array_of(x, "layer_norm", name))
    if row.dtype != dtype:
        raise TypeError(f"layer_norm: {name} is of {row.dtype}, and x of {dtype}: convert one to the other")
    return row
