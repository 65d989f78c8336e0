"""Shapes of operands, and what is said of those that do not fit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

import numpy as np

from kernels.contract.operands import array_of, pair

DIMS = (1, 2, 3)  # spatial dims of images


class Moves(TypedDict, total=False):
    """How the window of a convolution moves: a number for all spatial dims, or one for each."""

    stride: int | Sequence[int]
    dilation: int | Sequence[int]
    padding: int | Sequence[int | tuple[int, int]]  # zeros on both sides, or (before, after)
    groups: int


def matrices(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """a (..., rows, depth) and b (..., depth, columns) with equal leading dims, and the shape of their product.

    Leading dims are broadcast as NumPy does, by strides of 0. Raises TypeError and ValueError for what does not fit.
    """
    x, y = pair("matmul", a, b)
    if x.ndim < 2 or y.ndim < 2:
        raise ValueError(
            f"matmul: a has shape {x.shape} and b {y.shape}: (..., rows, depth) and (..., depth, columns) are expected"
        )
    if x.shape[-1] != y.shape[-2]:
        raise ValueError(
            f"matmul: the last dim of a {x.shape} and the last but one of b {y.shape} must be equal"
        )
    leading = x.shape[:-2]
    if leading != y.shape[:-2]:
        try:
            leading = np.broadcast_shapes(leading, y.shape[:-2])
        except ValueError:
            raise ValueError(
                f"matmul: the leading dims of a {x.shape} and b {y.shape} cannot be broadcast"
            ) from None
        x = np.broadcast_to(x, (*leading, *x.shape[-2:]))
        y = np.broadcast_to(y, (*leading, *y.shape[-2:]))
    return x, y, (*leading, x.shape[-2], y.shape[-1])


def summed(x: Any, dims: int | Sequence[int]) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """x, its elements as (elements that stay, elements that are summed), and the shape of the sums.

    A view where strides allow it, else a copy. Raises ValueError for dims that x has not, or that are named twice.
    """
    xs = array_of(x, "rowsum: x")
    each = [dims] if isinstance(dims, int) else list(dims)
    if any(not -xs.ndim <= d < xs.ndim for d in each) or len({d % xs.ndim for d in each}) < len(each):
        raise ValueError(
            f"rowsum: dims {dims!r} of x of shape {xs.shape}: choose different ones of {-xs.ndim} ... {xs.ndim - 1}"
        )
    gone = sorted(d % xs.ndim for d in each)
    stay = [d for d in range(xs.ndim) if d not in gone]
    shape = tuple(xs.shape[d] for d in stay)
    rows = xs.transpose(*stay, *gone).reshape(math.prod(shape), math.prod(xs.shape[d] for d in gone))
    return xs, rows, shape


@dataclass(frozen=True)
class Window:
    """The window of a convolution, and how it moves: tuples have an entry for each spatial dim."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # zeros before and after; negative ones leave elements out
    groups: int

    def positions(self, image: Sequence[int]) -> tuple[int, ...]:
        """The spatial shape of the output for that of an image; ValueError where the window does not fit in."""
        found = []
        for dim, n in enumerate(image):
            low, high = self.padding[dim]
            room = n + low + high - self.dilation[dim] * (self.size[dim] - 1) - 1
            if room < 0:
                raise ValueError(
                    f"conv: {n} elements of spatial dim {dim} with padding {low} and {high} are fewer than a window of "
                    f"{self.size[dim]} with dilation {self.dilation[dim]} takes: pad more"
                )
            found.append(room // self.stride[dim] + 1)
        return tuple(found)


def window(size: Sequence[int], moves: Moves) -> Window:
    """The window of this spatial shape; ValueError for moves that do not fit to it, TypeError for unknown ones."""
    if unknown := sorted(set(moves) - set(Moves.__annotations__)):
        raise TypeError(f"conv: unknown {unknown[0]!r}: choose from {', '.join(Moves.__annotations__)}")
    n, padding = len(size), moves.get("padding", 0)
    each = [padding] * n if isinstance(padding, int) else list(padding)
    sides = [(p, p) if isinstance(p, int) else tuple(p) for p in each]
    if len(sides) != n or any(len(side) != 2 for side in sides):
        raise ValueError(
            f"conv: padding {padding!r}: expected a number, or {n} numbers or pairs (before, after)"
        )
    return Window(
        _positive("window", size, n),
        _positive("stride", moves.get("stride", 1), n),
        _positive("dilation", moves.get("dilation", 1), n),
        tuple((int(low), int(high)) for low, high in sides),
        _positive("groups", moves.get("groups", 1), 1)[0],
    )


def convolution(x: Any, w: Any, moves: Moves) -> tuple[np.ndarray, np.ndarray, Window, tuple[int, ...]]:
    """Images (samples, channels, *spatial), weights (output channels, channels of a group, *window), the window and the
    shape of the output. Raises TypeError and ValueError for what does not fit, as all functions here."""
    xs, ws = pair("conv", x, w, ("x", "w"))
    _images("x", xs, ws.ndim - 2)
    of = window(ws.shape[2:], moves)
    if ws.shape[1] * of.groups != xs.shape[1] or ws.shape[0] % of.groups:
        raise ValueError(
            f"conv: w of shape {ws.shape} with {of.groups} groups for x of {xs.shape[1]} channels: "
            f"(a multiple of groups, channels / groups, *window) is expected"
        )
    return xs, ws, of, (xs.shape[0], ws.shape[0], *of.positions(xs.shape[2:]))


def input_gradient(
    gradient: Any, w: Any, size: Sequence[int], moves: Moves
) -> tuple[np.ndarray, np.ndarray, Window, tuple[int, ...]]:
    """The gradient of the output, weights, the window, and the shape of images of spatial shape `size`."""
    ys, ws = pair("conv_input", gradient, w, ("gradient", "w"))
    _images("gradient", ys, ws.ndim - 2)
    of = window(ws.shape[2:], moves)
    if len(size) != ws.ndim - 2:
        raise ValueError(f"conv_input: size {tuple(size)}: {ws.ndim - 2} spatial dims are expected")
    if ws.shape[0] != ys.shape[1] or ws.shape[0] % of.groups:
        raise ValueError(
            f"conv_input: w of shape {ws.shape} with {of.groups} groups for a gradient of {ys.shape[1]} channels: "
            f"({ys.shape[1]}, a multiple of groups; channels / groups; *window) is expected"
        )
    _positions(of, size, ys)
    return ys, ws, of, (ys.shape[0], ws.shape[1] * of.groups, *size)


def weight_gradient(
    x: Any, gradient: Any, size: Sequence[int], moves: Moves
) -> tuple[np.ndarray, np.ndarray, Window, tuple[int, ...]]:
    """Images, the gradient of the output, the window of spatial shape `size`, and the shape of weights."""
    xs, ys = pair("conv_weight", x, gradient, ("x", "gradient"))
    _images("x", xs, len(size))
    _images("gradient", ys, len(size))
    of = window(size, moves)
    if ys.shape[0] != xs.shape[0] or ys.shape[1] % of.groups or xs.shape[1] % of.groups:
        raise ValueError(
            f"conv_weight: x of shape {xs.shape} and a gradient of shape {ys.shape} with {of.groups} groups: equal "
            "samples, and channels that are multiples of groups, are expected"
        )
    _positions(of, xs.shape[2:], ys)
    return xs, ys, of, (ys.shape[1], xs.shape[1] // of.groups, *of.size)


def _positions(of: Window, image: Sequence[int], gradient: np.ndarray) -> None:
    if of.positions(image) != gradient.shape[2:]:
        raise ValueError(
            f"conv: a gradient of shape {gradient.shape} for images of spatial shape {tuple(image)}: "
            f"{of.positions(image)} is its spatial shape"
        )


def _images(name: str, x: np.ndarray, spatial: int) -> None:
    if spatial not in DIMS or x.ndim != spatial + 2:
        raise ValueError(
            f"conv: {name} has shape {x.shape} and the window {spatial} dims: (samples, channels, *spatial) and a dim "
            f"of the window for each of {DIMS[0]} to {DIMS[-1]} spatial ones are expected"
        )


def _positive(what: str, given: int | Sequence[int], n: int) -> tuple[int, ...]:
    values = [given] * n if isinstance(given, int | np.integer) else list(given)
    if len(values) != n or any(int(v) != v or v < 1 for v in values):
        raise ValueError(f"conv: {what} {given!r}: expected a number, or {n} of them, of 1 or more")
    return tuple(int(v) for v in values)
