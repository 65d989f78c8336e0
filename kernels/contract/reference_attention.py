"""The definition of attention: chains, sums in sixteen parts, and the exponential and logarithm. For tests: slow.

kernels/include/exponential.hpp has the same operations in the same order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np

from kernels.contract.heads import Heads, How, heads_of
from kernels.contract.operands import Array, like
from kernels.contract.promises import promised
from kernels.contract.reference import PIECE, chain, fma

SUMS = 16  # partial sum t of a row adds its elements t, t + 16, ...


@dataclass(frozen=True)
class Series:
    """Constants of the exponential and the logarithm for a type: degrees, ln 2 in two parts, and the range of e^x."""

    whole: type  # integers of the same width
    mantissa: int
    bias: int
    exp: int
    log: int
    shift: float  # adding it rounds to an integer
    log2_e: str
    ln2: str
    ln2_rest: str
    low: float
    high: float
    root: int  # the bits of sqrt(1/2)


SERIES = {
    "float32": Series(np.int32, 23, 127, 7, 4, 1.5 * 2.0**23, "0x1.715476p0", "0x1.62e43p-1", "-0x1.05c61p-29", -87, 88,
                      0x3F3504F3),
    "float64": Series(np.int64, 52, 1023, 13, 10, 1.5 * 2.0**52, "0x1.71547652b82fep0", "0x1.62e42fefa39efp-1",
                      "0x1.abc9e3b39803fp-56", -708, 709, 0x3FE6A09E667F3BCD),
}  # fmt: skip


def exponential(x: np.ndarray) -> np.ndarray:
    """e^x: +0 below `low`, e^high above `high`.

    With n the integer nearest to x / ln 2 and r = x - n ln 2, the result is 2^n times the Taylor polynomial in r, by
    Horner's rule.
    """
    s, of = SERIES[x.dtype.name], x.dtype.type
    with np.errstate(all="ignore"):
        most = np.where(x > of(s.high), of(s.high), x)
        shifted = _fused(most, _constant(s.log2_e, of), of(s.shift))
        n = of(s.shift) - shifted  # negated
        r = _fused(n, _constant(s.ln2_rest, of), _fused(n, _constant(s.ln2, of), most))
        total = np.full(x.shape, of(1) / of(math.factorial(s.exp)))
        for k in range(s.exp - 1, -1, -1):
            total = _fused(total, r, of(1) / of(math.factorial(k)))
        power = ((shifted.view(s.whole) << s.mantissa) + s.whole(s.bias << s.mantissa)).view(x.dtype)
        return np.where(x < of(s.low), of(0), total * power)


def logarithm(x: np.ndarray) -> np.ndarray:
    """log x for finite x >= 1: e ln 2 + 2 s (1 + s^2 / 3 + s^4 / 5 + ...), where x = 2^e f, f in
    [sqrt(1/2), sqrt(2)), and s = (f - 1) / (f + 1)."""
    c, of = SERIES[x.dtype.name], x.dtype.type
    bits: np.ndarray = x.view(c.whole)
    exponent = (bits - c.whole(c.root)) >> c.mantissa
    f, e = (bits - (exponent << c.mantissa)).view(x.dtype), exponent.astype(x.dtype)
    s = (f - of(1)) / (f + of(1))
    square, twice = s * s, s + s
    total = np.full(x.shape, of(1) / of(2 * c.log + 1))
    for k in range(c.log - 1, 0, -1):
        total = _fused(total, square, of(1) / of(2 * k + 1))
    small = _fused(twice * square, total, twice)
    return _fused(e, _constant(c.ln2, of), _fused(e, _constant(c.ln2_rest, of), small))


@promised("attention", "reference", backend="reference")
def attention(q: Array, k: Array, v: Array, **how: Unpack[How]) -> tuple[Array, Array]:
    """For each head and query: scores, exponentials of scores minus their largest, and chains of these with values."""
    of = heads_of(q, k, v, **how)
    out, logs = np.zeros(of.shape, of.q.dtype), np.full(of.rows, -np.inf, of.q.dtype)
    for at in np.ndindex(*of.rows):
        b, h, i = at
        scores = _scores(of, b, h, i)
        top = np.fmax.reduce(scores, initial=-np.inf)
        top = scores.dtype.type(0 if top == -np.inf else top)
        with np.errstate(all="ignore"):
            weights = exponential(scores - top)
            total = _by_parts(weights, np.ones_like(weights))
            sums = chain(weights[:, None], of.v[b, h, : len(scores)])
            if total != 0:
                out[at] = _plain(sums * (of.q.dtype.type(1) / total))
                logs[at] = _plain(top + logarithm(np.array([total]))[0]) if total > 0 else np.nan
    return like(out, q), like(logs, q)


@promised("attention_backward", "reference", backend="reference")
def attention_backward(
    gradient: Array, q: Array, k: Array, v: Array, out: Array, logsumexp: Array, **how: Unpack[How]
) -> tuple[Array, Array, Array]:
    """Weights p from logsumexp, their gradients p (gradient v - gradient out), and chains of both over keys and
    queries."""
    of = heads_of(q, k, v, **how)
    gradients, outs, logs = of.given(gradient, out, logsumexp)
    found = [np.zeros(x.shape, x.dtype) for x in (of.q, of.k, of.v)]
    with np.errstate(all="ignore"):
        for b, h in np.ndindex(*of.rows[:2]):
            _head_backward(of, (b, h), gradients, outs, logs, found)
    dq, dk, dv = (like(x, q) for x in found)
    return dq, dk, dv


def _head_backward(
    of: Heads, head: tuple[int, int], gradients: Any, outs: Any, logs: Any, found: list[np.ndarray]
) -> None:
    queries, keys = of.q.shape[2], of.k.shape[2]
    scale = of.q.dtype.type(of.scale)
    p, g = (np.zeros((queries, keys), of.q.dtype) for _ in range(2))
    seen = np.zeros(queries, int)
    for i in range(queries):
        scores = _scores(of, *head, i)
        n = seen[i] = len(scores)
        log = logs[(*head, i)]
        dot = _by_parts(gradients[(*head, i)], outs[(*head, i)])
        products = chain(gradients[(*head, i)][:, None], of.v[head][:n].T)
        p[i, :n] = exponential(scores - (scores.dtype.type(0) if log == -np.inf else log))
        g[i, :n] = p[i, :n] * (products - dot)
        found[0][(*head, i)] = _plain(chain(g[i, :n, None], of.k[head][:n]) * scale)
    for j in range(keys):
        sees = [i for i in range(queries) if j < seen[i]]
        found[1][(*head, j)] = _plain(_over_queries(g[:, j], of.q[head], sees) * scale)
        found[2][(*head, j)] = _plain(_over_queries(p[:, j], gradients[head], sees))


def _over_queries(weights: np.ndarray, rows: np.ndarray, sees: list[int]) -> np.ndarray:
    """The sum of rows times weights over the queries that see a key: pieces begin at multiples of 256 queries."""
    total = np.zeros(rows.shape[1], rows.dtype)
    for first in range(0, len(rows), PIECE):
        piece = [i for i in sees if first <= i < first + PIECE]
        total = total + chain(weights[piece, None], rows[piece])
    return total


def _scores(of: Heads, b: int, h: int, i: int) -> np.ndarray:
    """scale q k^T + mask of the keys that query i sees, each operation rounded: (keys,)."""
    seen = min(i + 1, of.k.shape[2]) if of.causal else of.k.shape[2]
    with np.errstate(all="ignore"):
        scores = chain(of.q[b, h, i][:, None], of.k[b, h, :seen].T) * of.q.dtype.type(of.scale)
        return scores if of.mask is None else scores + of.mask[b, h, i, :seen]


def _by_parts(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The sum of products in SUMS chains, added in halves: t and t + 8, then t and t + 4, ..."""
    sums = np.zeros(SUMS, a.dtype)
    for first in range(0, len(a), SUMS):
        x, y = a[first : first + SUMS], b[first : first + SUMS]
        sums[: len(x)] = _fused(x, y, sums[: len(x)])
    while len(sums) > 1:
        half = len(sums) // 2
        sums = sums[:half] + sums[half:]
    return sums[0]


def _plain(x: np.ndarray) -> np.ndarray:
    """Zeros and NaN without sign."""
    return np.where(np.isnan(x), x.dtype.type(np.nan), x + x.dtype.type(0))


def _fused(a: Any, b: Any, c: Any) -> np.ndarray:
    a, b, c = np.broadcast_arrays(a, b, c)
    return fma(a, b, c) if a.size else np.zeros(a.shape, a.dtype)


def _constant(text: str, of: type) -> Any:
    return of(float.fromhex(text))
