"""Products in C++: chains of fused multiply-adds, packed panels, tiles in registers (kernels/native/contract.hpp).

`threads`: threads of OpenMP, 0 for its default; `level`: an instruction set of LEVELS, None for the best of this
processor. Neither changes bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Unpack

import numpy as np

from kernels import _native
from kernels.contract.operands import Array, matrices, pair, summed, written
from kernels.contract.promises import promised
from kernels.contract.shapes import Moves, Window, convolution, ends, input_gradient, weight_gradient
from kernels.guarantees import known
from kernels.threads import checked

LEVELS: list[str] = _native.CONTRACT["levels"]
PIECE: int = _native.CONTRACT["piece"]


def level_number(name: str | None) -> int:
    """The number of an instruction set of LEVELS in C++, -1 for the best one here."""
    return -1 if name is None else LEVELS.index(known("instruction set", name, LEVELS))


@promised("matmul", "own", backend="native")
def matmul(
    a: Array,
    b: Array,
    out: Array | None = None,
    *,
    blocks: Sequence[int] | None = None,
    threads: int = 1,
    level: str | None = None,
) -> Array:
    """c[i, j] = the sum over k, ascending, of a[i, k] b[k, j]: the number of k alone determines the order.

    `blocks`: lengths of blocks of k. Each block has such a sum, and the tree of `block-tree` adds the sums of blocks:
    the lengths alone determine the order. Every zero is then +0.0.
    """
    x, y, shape = matrices(a, b)
    team, at = checked(threads), level_number(level)
    last = () if blocks is None else (ends("matmul", blocks, x.shape[-1]),)
    return written(
        "matmul", lambda c: _native.contract_matmul(x, y, c, team, at, *last), shape, (x, y), a, out
    )


@promised("rowsum", "own", backend="native")
def rowsum(
    x: Array,
    dims: int | Sequence[int],
    out: Array | None = None,
    *,
    blocks: Sequence[int] | None = None,
    apart: bool = False,
    threads: int = 1,
    level: str | None = None,
) -> Array:
    """The sum over these dims, in row-major order of their elements: their number alone determines the order.

    Up to 256 terms are added one by one to +0.0. More terms are summed in pieces of 256, and the sums of pieces are
    added in the same way. For up to 65536 terms this has the bits of the product with ones.

    `blocks`: lengths of blocks of the first of these dims. Each block has such a sum. The tree of `block-tree` adds
    them, or the result keeps them `apart`: (blocks, *shape).
    """
    xs, turned, n = summed(x, dims)
    shape, terms = turned.shape[:n], turned.shape[n:]
    of_blocks = ends("rowsum", blocks, terms[0] if terms else 1)
    places = [end * prod(terms[1:]) for end in of_blocks]
    team, at = checked(threads), level_number(level)
    return written(
        "rowsum",
        lambda total: _native.contract_rowsum(turned, n, total, places, apart, team, at),
        (len(places), *shape) if apart else shape,
        (xs,),
        x,
        out,
        gaps=False,
    )


@promised("conv", "own", backend="native")
def conv(
    x: Array,
    w: Array,
    out: Array | None = None,
    *,
    threads: int = 1,
    level: str | None = None,
    **moves: Unpack[Moves],
) -> Array:
    """y[n, o, p] = the sum over channels c and places t of the window, ascending, of w[o, c, t] x[n, c, p stride +
    t dilation - padding]. Zeros outside count as terms, so the channels of a group and the window alone determine the
    order."""
    xs, ws = pair("conv", x, w, ("x", "w"))
    of, shape = convolution(xs.shape, ws.shape, moves)
    run = _runner(of, threads, level)
    return written("conv", lambda y: run("output", xs, _whole(ws), y), shape, (xs, ws), x, out)


@promised("conv_input", "own", backend="native")
def conv_input(
    gradient: Array,
    w: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    threads: int = 1,
    level: str | None = None,
    **moves: Unpack[Moves],
) -> Array:
    """The gradient of images of spatial shape `size`; also the transposed convolution of `gradient`.

    Each element is the sum over output channels and over the places of the window that cover it at a whole number of
    strides, ascending. The element's own place determines the order. Positions beyond the output count as zero terms.
    """
    ys, ws = pair("conv_input", gradient, w, ("gradient", "w"))
    of, shape = input_gradient(ys.shape, ws.shape, size, moves)
    run = _runner(of, threads, level)
    return written("conv_input", lambda x: run("input", x, _whole(ws), ys), shape, (ys, ws), gradient, out)


@promised("conv_weight", "own", backend="native")
def conv_weight(
    x: Array,
    gradient: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    blocks: Sequence[int] | None = None,
    threads: int = 1,
    level: str | None = None,
    **moves: Unpack[Moves],
) -> Array:
    """The gradient of weights, whose window has the spatial shape `size`.

    Each element is the sum over samples and positions of the output, ascending; their number determines the order. A
    cut of samples or positions cuts the sum. `blocks`: lengths of blocks of samples; each block has such a sum, and the
    tree of `block-tree` adds them.
    """
    xs, ys = pair("conv_weight", x, gradient, ("x", "gradient"))
    of, shape = weight_gradient(xs.shape, ys.shape, size, moves)
    run = _runner(of, threads, level, [] if blocks is None else ends("conv_weight", blocks, len(xs)))
    return written("conv_weight", lambda w: run("weight", xs, w, ys), shape, (xs, ys), x, out, gaps=False)


def _runner(of: Window, threads: int, level: str | None, blocks: Sequence[int] = ()) -> Callable[..., None]:
    """The C++ kernel for a window, called with (name of the result, x, w, y), for up to three spatial dims."""
    front = 3 - len(of.size)

    def three(dims: tuple[int, ...], fill: int) -> tuple[int, ...]:
        return (fill,) * front + dims

    def spatial(x: np.ndarray) -> np.ndarray:
        return x[(slice(None), slice(None)) + (None,) * front]

    low = tuple(before for before, _ in of.padding)
    moves = (
        three(of.stride, 1),
        three(of.dilation, 1),
        three(low, 0),
        of.groups,
        checked(threads),
        level_number(level),
        blocks,
    )
    return lambda what, x, w, y: _native.contract_conv(what, spatial(x), spatial(w), spatial(y), *moves)


def _whole(w: np.ndarray) -> np.ndarray:
    """Contiguous weights, as the kernel reads them; the copy is small."""
    return np.ascontiguousarray(w)
