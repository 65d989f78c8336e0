"""Shapes of operands and results, and the errors for shapes that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TypedDict

import numpy as np

Shape = tuple[int, ...]
DIMS = (1, 2, 3)  # spatial dims of images


class Moves(TypedDict, total=False):
    """How the window of a convolution moves: a number for all spatial dims, or one for each."""

    stride: int | Sequence[int]
    dilation: int | Sequence[int]
    padding: int | Sequence[int | tuple[int, int]]  # zeros on both sides, or (before, after)
    groups: int


def product(a: Shape, b: Shape) -> Shape:
    """The shape of the product of a (..., rows, depth) and b (..., depth, columns), leading dims broadcast as by NumPy.

    Raises ValueError for shapes that do not fit.
    """
    if len(a) < 2 or len(b) < 2:
        raise ValueError(
            f"matmul: a has shape {a} and b {b}: (..., rows, depth) and (..., depth, columns) are expected"
        )
    if a[-1] != b[-2]:
        raise ValueError(f"matmul: the last dim of a {a} and the last but one of b {b} must be equal")
    if a[:-2] == b[:-2]:
        return (*a[:-1], b[-1])
    try:
        return (*np.broadcast_shapes(a[:-2], b[:-2]), a[-2], b[-1])
    except ValueError:
        raise ValueError(f"matmul: the leading dims of a {a} and b {b} cannot be broadcast") from None


def stay(x: Shape, dims: int | Sequence[int]) -> tuple[list[int], list[int]]:
    """(dims that stay, dims that are summed), ascending; raises ValueError for a dim that x lacks or a repeated one."""
    each = [dims] if isinstance(dims, int) else list(dims)
    n = len(x)
    if any(not -n <= d < n for d in each) or len({d % n for d in each}) < len(each):
        raise ValueError(
            f"rowsum: dims {dims!r} of x of shape {x}: choose different ones of {-n} ... {n - 1}"
        )
    gone = sorted(d % n for d in each)
    return [d for d in range(n) if d not in gone], gone


def ends(what: str, blocks: Sequence[int] | None, n: int) -> list[int]:
    """The ends of blocks of these lengths, or of one block for None; raises ValueError unless the lengths add to n."""
    if blocks is None:
        return [n]
    found = list(accumulate(blocks))
    if min(blocks, default=-1) < 0 or found[-1] != n:
        raise ValueError(
            f"{what}: blocks {list(blocks)!r}: lengths of 0 or more that make up {n} are expected"
        )
    return found


@dataclass(frozen=True)
class Window:
    """The window of a convolution, and how it moves: tuples have an entry for each spatial dim."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # zeros before and after; a negative number removes elements
    groups: int

    def positions(self, image: Sequence[int]) -> tuple[int, ...]:
        """The output's spatial shape for the image's; raises ValueError where the window is larger than the image."""
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
    """The window of this spatial shape; raises ValueError for moves that do not fit it, TypeError for unknown ones."""
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


def convolution(x: Shape, w: Shape, moves: Moves) -> tuple[Window, Shape]:
    """The window and the shape of the output, for images (samples, channels, *spatial) and weights (output channels,
    channels of a group, *window)."""
    _images("x", x, len(w) - 2)
    of = window(w[2:], moves)
    if w[1] * of.groups != x[1] or w[0] % of.groups:
        raise ValueError(
            f"conv: w of shape {w} with {of.groups} groups for x of {x[1]} channels: "
            f"(a multiple of groups, channels / groups, *window) is expected"
        )
    return of, (x[0], w[0], *of.positions(x[2:]))


def input_gradient(gradient: Shape, w: Shape, size: Sequence[int], moves: Moves) -> tuple[Window, Shape]:
    """The window, and the shape of images of spatial shape `size`, for a gradient of the output and weights."""
    _images("gradient", gradient, len(w) - 2)
    of = window(w[2:], moves)
    if len(size) != len(w) - 2:
        raise ValueError(f"conv_input: size {tuple(size)}: {len(w) - 2} spatial dims are expected")
    if w[0] != gradient[1] or w[0] % of.groups:
        raise ValueError(
            f"conv_input: w of shape {w} with {of.groups} groups for a gradient of {gradient[1]} channels: "
            f"({gradient[1]}, a multiple of groups; channels / groups; *window) is expected"
        )
    _positions(of, size, gradient)
    return of, (gradient[0], w[1] * of.groups, *size)


def weight_gradient(x: Shape, gradient: Shape, size: Sequence[int], moves: Moves) -> tuple[Window, Shape]:
    """The window of spatial shape `size`, and the shape of weights, for images and the gradient of the output."""
    _images("x", x, len(size))
    _images("gradient", gradient, len(size))
    of = window(size, moves)
    if gradient[0] != x[0] or gradient[1] % of.groups or x[1] % of.groups:
        raise ValueError(
            f"conv_weight: x of shape {x} and a gradient of shape {gradient} with {of.groups} groups: equal samples, "
            "and channels that are multiples of groups, are expected"
        )
    _positions(of, x[2:], gradient)
    return of, (gradient[1], x[1] // of.groups, *of.size)


def _positions(of: Window, image: Sequence[int], gradient: Shape) -> None:
    if of.positions(image) != gradient[2:]:
        raise ValueError(
            f"conv: a gradient of shape {gradient} for images of spatial shape {tuple(image)}: {of.positions(image)} "
            "is its spatial shape"
        )


def _images(name: str, x: Shape, spatial: int) -> None:
    if spatial not in DIMS or len(x) != spatial + 2:
        raise ValueError(
            f"conv: {name} has shape {x} and the window {spatial} dims: (samples, channels, *spatial) and a dim of the "
            f"window for each of {DIMS[0]} to {DIMS[-1]} spatial ones are expected"
        )


def _positive(what: str, given: int | Sequence[int], n: int) -> tuple[int, ...]:
    values = [given] * n if isinstance(given, int | np.integer) else list(given)
    if len(values) != n or any(int(v) != v or v < 1 for v in values):
        raise ValueError(f"conv: {what} {given!r}: expected a number, or {n} of them, of 1 or more")
    return tuple(int(v) for v in values)
