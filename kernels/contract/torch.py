"""Products by torch: its own kernels for whole operands, and blocks of one shape."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Unpack

import numpy as np

from kernels.contract.operands import Array, matrices, pair, summed, written
from kernels.contract.promises import promised
from kernels.contract.shapes import Moves, Window, convolution, input_gradient, weight_gradient
from kernels.missing import missing
from kernels.threads import checked, cores

BLOCK = (32, 64)  # rows and columns of a block of a product


@contextmanager
def in_threads(threads: int) -> Iterator[None]:
    """A context in which torch computes with so many threads; 0: one per core."""
    import torch

    before, team = torch.get_num_threads(), checked(threads) or cores()
    if team == before:
        yield
        return
    torch.set_num_threads(team)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@promised("matmul", "torch", backend="torch", available=missing("torch"))
def matmul(a: Array, b: Array, out: Array | None = None, *, threads: int = 1) -> Array:
    """torch.matmul: its BLAS chooses the order of sums by the sizes."""
    x, y, shape = matrices(a, b)
    return written("matmul", _computed(threads, lambda t: t.matmul(*tensors(x, y))), shape, (x, y), a, out)


@promised("matmul", "torch-blocks", backend="torch", available=missing("torch"))
def matmul_blocks(
    a: Array, b: Array, out: Array | None = None, *, threads: int = 1, block: tuple[int, int] = BLOCK
) -> Array:
    """torch.mm of blocks of so many rows and columns, padded with zeros: the content of a block determines its bits.

    `threads` is checked but not used: one thread computes. Blocks begin at the first row and column, so only cuts
    between blocks keep the bits.
    """
    x, y, shape = matrices(a, b)
    checked(threads)

    def blocks(torch: Any) -> Any:
        out = torch.empty(shape, dtype=_type(torch, x))
        (rows, columns), depth = block, x.shape[-1]
        left = torch.zeros((rows, depth), dtype=out.dtype)
        right = torch.zeros((depth, columns), dtype=out.dtype)
        p, q = tensors(x, y)
        for batch in np.ndindex(*shape[:-2]):
            for j in range(0, shape[-1], columns):
                some = q[batch][:, j : j + columns]
                right.zero_()[:, : some.shape[1]] = some
                for i in range(0, shape[-2], rows):
                    few = p[batch][i : i + rows]
                    left.zero_()[: len(few)] = few
                    whole = torch.mm(left, right)
                    out[batch][i : i + rows, j : j + columns] = whole[: len(few), : some.shape[1]]
        return out

    return written("matmul", _computed(1, blocks), shape, (x, y), a, out)


@promised("rowsum", "torch", backend="torch", available=missing("torch"))
def rowsum(x: Array, dims: int | Sequence[int], out: Array | None = None, *, threads: int = 1) -> Array:
    """torch.sum: torch chooses vectors and threads."""
    xs, turned, n = summed(x, dims)
    shape = turned.shape[:n]
    every = (dims,) if isinstance(dims, int) else tuple(dims)
    return written("rowsum", _computed(threads, lambda t: t.sum(*tensors(xs), every)), shape, (xs,), x, out)


@promised("conv", "torch", backend="torch", available=missing("torch"))
def conv(x: Array, w: Array, out: Array | None = None, *, threads: int = 1, **moves: Unpack[Moves]) -> Array:
    """torch's convolution of padded images."""
    xs, ws = pair("conv", x, w, ("x", "w"))
    of, shape = convolution(xs.shape, ws.shape, moves)

    def compute(torch: Any) -> Any:
        image, weights = tensors(xs, ws)
        return _function(torch, of)(
            _padded(torch, image, of), weights, None, of.stride, 0, of.dilation, of.groups
        )

    return written("conv", _computed(threads, compute), shape, (xs, ws), x, out)


@promised("conv_input", "torch", backend="torch", available=missing("torch"))
def conv_input(
    gradient: Array,
    w: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    threads: int = 1,
    **moves: Unpack[Moves],
) -> Array:
    """The gradient of images by torch."""
    ys, ws = pair("conv_input", gradient, w, ("gradient", "w"))
    of, shape = input_gradient(ys.shape, ws.shape, size, moves)

    def compute(torch: Any) -> Any:
        image = torch.zeros(shape, dtype=_type(torch, ys))
        weights, last = tensors(ws, ys)
        return _backward(torch, of, image, weights, last, 0)

    return written("conv_input", _computed(threads, compute), shape, (ys, ws), gradient, out)


@promised("conv_weight", "torch", backend="torch", available=missing("torch"))
def conv_weight(
    x: Array,
    gradient: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    threads: int = 1,
    **moves: Unpack[Moves],
) -> Array:
    """The gradient of weights by torch."""
    xs, ys = pair("conv_weight", x, gradient, ("x", "gradient"))
    of, shape = weight_gradient(xs.shape, ys.shape, size, moves)

    def compute(torch: Any) -> Any:
        image, last = tensors(xs, ys)
        return _backward(torch, of, image, torch.zeros(shape, dtype=image.dtype), last, 1)

    return written("conv_weight", _computed(threads, compute), shape, (xs, ys), x, out)


# ---- shared by all variants


def _computed(threads: int, compute: Callable[[Any], Any]) -> Callable[[np.ndarray], None]:
    """A function that writes the result of `compute(torch)`, with so many threads, into its target."""

    def into(target: np.ndarray) -> None:
        import torch

        with in_threads(threads), torch.no_grad():
            target[...] = compute(torch).numpy()

    return into


def tensors(*arrays: np.ndarray) -> list[Any]:
    """Tensors in the same memory; arrays with negative strides, and read-only ones, are copied."""
    import torch

    def possible(x: np.ndarray) -> bool:
        return x.flags.writeable and all(step >= 0 for step in x.strides)

    return [torch.from_numpy(x if possible(x) else np.array(x, order="C")) for x in arrays]


def _type(torch: Any, x: np.ndarray) -> Any:
    return getattr(torch, x.dtype.name)


def _function(torch: Any, of: Window) -> Any:
    return getattr(torch.nn.functional, f"conv{len(of.size)}d")


def _padded(torch: Any, image: Any, of: Window, sign: int = 1) -> Any:
    """Pads images with zeros, or with `sign` -1 removes them; torch's own padding is the same on both sides."""
    sides = [sign * side for pair in reversed(of.padding) for side in pair]
    return torch.nn.functional.pad(image, sides) if any(sides) else image


def _backward(torch: Any, of: Window, image: Any, weights: Any, gradient: Any, which: int) -> Any:
    """The gradient of images (`which` 0) or weights (1): pads images first and removes the padding at the end."""
    padded = _padded(torch, image, of)
    wanted = [which == 0, which == 1, False]
    none = [0] * len(of.size)
    found = torch.ops.aten.convolution_backward(
        gradient, padded, weights, None, of.stride, none, of.dilation, False, none, of.groups, wanted
    )[which]
    return found if which else _padded(torch, found, of, -1)
