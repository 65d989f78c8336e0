"""The definition of products: chains of exact multiply-adds, each rounded once. For tests: slow."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product
from typing import Unpack

import numpy as np

from kernels.contract.operands import Array, matrices, pair, summed, written
from kernels.contract.promises import promised
from kernels.contract.shapes import Moves, Window, convolution, ends, input_gradient, weight_gradient

PIECE = 256


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c elementwise, rounded once to their type, float32 or float64."""
    if c.dtype == np.float64:
        return _by_fractions(a, b, c).astype(np.float64)
    a, b, c = (x.astype(np.float64) for x in (a, b, c))
    with np.errstate(all="ignore"):
        p = a * b  # exact
        s = p + c
        # Round to odd, so that rounding to float32 is correct (Boldo & Melquiond 2008): where s has an error, by
        # Knuth's TwoSum, and an even last bit, take its neighbour on the side of the error.
        t = s - p
        error = (p - (s - t)) + (c - t)
        even = s.view(np.int64) % 2 == 0
        odd = np.nextafter(s, np.copysign(np.inf, error))
        return np.where(np.isfinite(s) & (error != 0) & even, odd, s).astype(np.float32)


@np.vectorize
def _by_fractions(a: float, b: float, c: float) -> float:
    if not all(map(math.isfinite, (a, b, c))):
        return a * b + c
    whole = Fraction(a) * Fraction(b) + Fraction(c)
    if whole == 0:
        return 0.0 if a and b else a * b + c  # zeros have signs
    try:
        return float(whole)
    except OverflowError:
        return math.copysign(math.inf, whole)


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sums over the first dim of the products of `a` and `b`, broadcast: in pieces of 256, in order."""
    shape = np.broadcast_shapes(a.shape[1:], b.shape[1:])
    total = np.zeros(shape, a.dtype)
    for first in range(0, len(a), PIECE):
        piece = np.zeros(shape, a.dtype)
        for k in range(first, min(first + PIECE, len(a))):
            piece = fma(*np.broadcast_arrays(a[k], b[k], piece)).reshape(shape)
        with np.errstate(all="ignore"):
            total = total + piece if first else piece
    return np.where(np.isnan(total), total.dtype.type(np.nan), total)


@promised("matmul", "reference", backend="reference")
def matmul(a: Array, b: Array, out: Array | None = None, *, blocks: Sequence[int] | None = None) -> Array:
    """c[i, j] = the chain of a[i, k] b[k, j] over k, or the tree of the chains of blocks."""
    x, y, shape = matrices(a, b)

    def compute(c: np.ndarray) -> None:
        factors = np.moveaxis(x, -1, 0)[..., None], np.moveaxis(y, -2, 0)[..., None, :]
        c[...] = _over_blocks("matmul", blocks, x.shape[-1], lambda own: chain(*(f[own] for f in factors)))

    return written("matmul", compute, shape, (x, y), a, out)


@promised("rowsum", "reference", backend="reference")
def rowsum(
    x: Array, dims: int | Sequence[int], out: Array | None = None, *, blocks: Sequence[int] | None = None
) -> Array:
    """Adds up to 256 terms one by one; more in pieces of 256, then the sums of pieces in the same way. `blocks`: the
    tree of such sums of blocks."""
    xs, turned, n = summed(x, dims)
    shape, terms = turned.shape[:n], turned.shape[n:]

    def over(own: slice) -> np.ndarray:
        mine = turned[(slice(None),) * n + (own,)] if terms else turned
        left = mine.reshape(math.prod(shape), math.prod(mine.shape[n:]))
        while left.shape[1] > PIECE:
            starts = range(0, left.shape[1], PIECE)
            left = np.stack([_ordered(left[:, first : first + PIECE]) for first in starts], axis=1)
        return _ordered(left)

    def compute(total: np.ndarray) -> None:
        total[...] = _over_blocks("rowsum", blocks, terms[0] if terms else 1, over).reshape(shape)

    return written("rowsum", compute, shape, (xs,), x, out)


def _ordered(rows: np.ndarray) -> np.ndarray:
    return chain(rows.T, np.ones((rows.shape[1], 1), rows.dtype))


def _over_blocks(
    what: str, blocks: Sequence[int] | None, n: int, over: Callable[[slice], np.ndarray]
) -> np.ndarray:
    """`over` of all n, or of each block, added by the tree: for s = 1, 2, 4, ... p[i] += p[i + s] where i is a multiple
    of 2 s. Every zero of the tree is +0.0."""
    until = ends(what, blocks, n)
    sums = [over(slice(begin, end)) for begin, end in zip([0, *until[:-1]], until, strict=True)]
    while len(sums) > 1:
        with np.errstate(all="ignore"):
            pairs = [a + b + a.dtype.type(0) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = pairs + sums[2 * len(pairs) :]
    return sums[0]


# ---- convolutions: for each element the list of its terms


@promised("conv", "reference", backend="reference")
def conv(x: Array, w: Array, out: Array | None = None, **moves: Unpack[Moves]) -> Array:
    """For each output the chain over the channels of its group and the places of the window, ascending."""
    xs, ws = pair("conv", x, w, ("x", "w"))
    of, shape = convolution(xs.shape, ws.shape, moves)

    def compute(y: np.ndarray) -> None:
        for o, at in product(range(shape[1]), np.ndindex(*shape[2:])):
            channels = _group(o, shape[1], xs.shape[1], of.groups)
            seen = [_element(xs[:, c], _seen(of, at, t)) for c in channels for t in np.ndindex(*of.size)]
            y[(slice(None), o, *at)] = chain(ws[o].reshape(-1, 1), _stacked(seen, y))

    return written("conv", compute, shape, (xs, ws), x, out)


@promised("conv_input", "reference", backend="reference")
def conv_input(
    gradient: Array, w: Array, size: Sequence[int], out: Array | None = None, **moves: Unpack[Moves]
) -> Array:
    """For each element of x the chain over the output channels of its group and the places of the window that can
    cover it."""
    ys, ws = pair("conv_input", gradient, w, ("gradient", "w"))
    of, shape = input_gradient(ys.shape, ws.shape, size, moves)

    def compute(x: np.ndarray) -> None:
        for c, at in product(range(shape[1]), np.ndindex(*shape[2:])):
            outputs = _group(c, shape[1], ys.shape[1], of.groups)
            weights, seen = [], []
            for o, t in product(outputs, np.ndindex(*of.size)):
                far = [i - s for i, s in zip(at, _seen(of, (0,) * len(at), t), strict=True)]
                if all(f % s == 0 for f, s in zip(far, of.stride, strict=True)):
                    weights.append(ws[(o, c % ws.shape[1], *t)])
                    seen.append(
                        _element(ys[:, o], tuple(f // s for f, s in zip(far, of.stride, strict=True)))
                    )
            factors = np.array(weights, x.dtype).reshape(-1, 1)
            x[(slice(None), c, *at)] = chain(factors, _stacked(seen, x))

    return written("conv_input", compute, shape, (ys, ws), gradient, out)


@promised("conv_weight", "reference", backend="reference")
def conv_weight(
    x: Array,
    gradient: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    blocks: Sequence[int] | None = None,
    **moves: Unpack[Moves],
) -> Array:
    """For each weight the chain over samples and positions of the output, ascending, or the tree of blocks' chains."""
    xs, ys = pair("conv_weight", x, gradient, ("x", "gradient"))
    of, shape = weight_gradient(xs.shape, ys.shape, size, moves)

    def compute(w: np.ndarray) -> None:
        for o, i, t in product(range(shape[0]), range(shape[1]), np.ndindex(*of.size)):
            c = _group(o, shape[0], xs.shape[1], of.groups)[i]
            seen = [_element(xs[:, c], _seen(of, at, t)) for at in np.ndindex(*ys.shape[2:])]
            image = np.array(seen, w.dtype).reshape(len(seen), len(xs)).T
            terms = ys[:, o].reshape(len(xs), len(seen)), image

            def over(own: slice, terms: tuple[np.ndarray, np.ndarray] = terms) -> np.ndarray:
                gradients, seen_by_weight = (x[own].reshape(-1) for x in terms)
                return chain(gradients, seen_by_weight)

            w[(o, i, *t)] = _over_blocks("conv_weight", blocks, len(xs), over)

    return written("conv_weight", compute, shape, (xs, ys), x, out)


def _group(channel: int, channels: int, others: int, groups: int) -> range:
    """The channels of the other side that are in the group of `channel`."""
    many = others // groups
    group = channel // (channels // groups)
    return range(group * many, (group + 1) * many)


def _seen(of: Window, at: Sequence[int], t: Sequence[int]) -> tuple[int, ...]:
    """The point of x at place t of the window at position `at`."""
    return tuple(
        p * s + i * d - low
        for p, s, i, d, (low, _) in zip(at, of.stride, t, of.dilation, of.padding, strict=True)
    )


def _element(x: np.ndarray, at: tuple[int, ...]) -> np.ndarray:
    """x[:, *at], zeros outside: (samples,)."""
    inside = all(0 <= i < n for i, n in zip(at, x.shape[1:], strict=True))
    return (
        x.reshape(len(x), -1)[:, np.ravel_multi_index(at, x.shape[1:])]
        if inside
        else np.zeros(len(x), x.dtype)
    )


def _stacked(rows: list[np.ndarray], like: np.ndarray) -> np.ndarray:
    """(terms, samples), also of no terms."""
    return np.stack(rows) if rows else np.zeros((0, like.shape[0]), like.dtype)
