"""Products in C++: chains of fused multiply-adds, packed panels, tiles in registers (kernels/native/contract.hpp).

`threads`: of OpenMP, 0 for its default; `level`: an instruction set of LEVELS, None for the best that this processor
has. Neither enters the bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Unpack

import numpy as np

from kernels import _native
from kernels.contract.operands import Array, matrices, pair, summed, written
from kernels.contract.promises import promised
from kernels.contract.shapes import Moves, Window, convolution, input_gradient, weight_gradient
from kernels.guarantees import known
from kernels.threads import checked

LEVELS: list[str] = _native.CONTRACT["levels"]
PIECE: int = _native.CONTRACT["piece"]
WHOLE = PIECE * PIECE  # terms whose pieces are added one by one
FEW = 64  # rows: fewer of many terms are summed faster piece by piece


def _level(name: str | None) -> int:
    return -1 if name is None else LEVELS.index(known("instruction set", name, LEVELS))


@promised("matmul", "own", backend="native")
def matmul(
    a: Array, b: Array, out: Array | None = None, *, threads: int = 1, level: str | None = None
) -> Array:
    """c[i, j] = the sum over k, ascending, of a[i, k] b[k, j]: fixed by the number of k alone."""
    x, y, shape = matrices(a, b)
    team, at = checked(threads), _level(level)
    return written("matmul", lambda c: _native.contract_matmul(x, y, c, team, at), shape, (x, y), a, out)


@promised("rowsum", "own", backend="native")
def rowsum(
    x: Array,
    dims: int | Sequence[int],
    out: Array | None = None,
    *,
    threads: int = 1,
    level: str | None = None,
) -> Array:
    """The sum over these dims, in row-major order of their elements: fixed by their number alone.

    Up to 256 terms are added one by one to +0.0; of more, pieces of 256 are summed, and then these sums in the same
    way. Up to 65536 terms that is the product with ones.
    """
    xs, rows, shape = summed(x, dims)
    team, at = checked(threads), _level(level)
    ones = np.ones((1, WHOLE), xs.dtype)

    def add(total: np.ndarray) -> None:
        left = rows
        while left.shape[1] > WHOLE or (left.shape[1] > PIECE and len(left) < FEW):
            left = _pieces(left, ones, team, at)
        sums = total.reshape(1, -1)
        _native.contract_matmul(ones[:, : left.shape[1]], left.T, sums, team, at)

    return written("rowsum", add, shape, (xs,), x, out, gaps=False)


def _pieces(rows: np.ndarray, ones: np.ndarray, threads: int, level: int) -> np.ndarray:
    """The sums of pieces of 256 elements of each row: (rows, pieces), in memory by rows."""
    n, length = rows.shape
    whole = length // PIECE
    sums = np.empty((n, -(-length // PIECE)), rows.dtype)
    pieces = rows[:, : whole * PIECE].reshape(n, whole, PIECE)
    _native.contract_matmul(
        np.broadcast_to(ones[:, :PIECE], (n, 1, PIECE)),
        pieces.transpose(0, 2, 1),
        sums[:, None, :whole],
        threads,
        level,
    )
    if length % PIECE:
        rest = rows[:, whole * PIECE :]
        _native.contract_matmul(ones[:, : rest.shape[1]], rest.T, sums[:, whole:].T, threads, level)
    return sums


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
    t dilation - padding]: fixed by the channels of a group and the window, since zeros outside are terms as others."""
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
    """The gradient of images of spatial shape `size`, which is the transposed convolution of `gradient` too.

    Each element is the sum over output channels and, ascending, over those places of the window that lie on it when
    the window stands at a whole number of strides: fixed by its own place. Positions beyond the output are zeros, and
    terms as others.
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
    threads: int = 1,
    level: str | None = None,
    **moves: Unpack[Moves],
) -> Array:
    """The gradient of weights, whose window has the spatial shape `size`.

    Each element is the sum over samples and positions of the output, ascending in this order: fixed by their number.
    Whoever cuts samples or positions cuts the sum.
    """
    xs, ys = pair("conv_weight", x, gradient, ("x", "gradient"))
    of, shape = weight_gradient(xs.shape, ys.shape, size, moves)
    run = _runner(of, threads, level)
    return written("conv_weight", lambda w: run("weight", xs, w, ys), shape, (xs, ys), x, out, gaps=False)


def _runner(of: Window, threads: int, level: str | None) -> Callable[..., None]:
    """The kernel of C++ for a window: (what is written, x, w, y), of images with up to three spatial dims."""
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
        _level(level),
    )
    return lambda what, x, w, y: _native.contract_conv(what, spatial(x), spatial(w), spatial(y), *moves)


def _whole(w: np.ndarray) -> np.ndarray:
    """Weights without gaps, as the kernel walks through them: they are few."""
    return np.ascontiguousarray(w)
