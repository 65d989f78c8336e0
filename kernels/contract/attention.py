"""Attention in C++ (kernels/native/contract_attention.hpp): the bits of a head depend on its own q, k and v alone.

    out, logsumexp = attention(q, k, v, causal=True)
    q_gradient, k_gradient, v_gradient = attention_backward(gradient, q, k, v, out, logsumexp, causal=True)

q is (samples, heads, queries, depth), k (samples, heads, keys, depth), v (samples, heads, keys, width); out is
(samples, heads, queries, width) and logsumexp (samples, heads, queries). Products are the chains of `matmul`.
"""

from __future__ import annotations

import math

import numpy as np

from kernels import _native
from kernels.contract.native import _level
from kernels.contract.operands import Array, array_of, like
from kernels.threads import checked


def attention(
    q: Array,
    k: Array,
    v: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: Array | None = None,
    dropout: float = 0.0,
    threads: int = 1,
    level: str | None = None,
) -> tuple[Array, Array]:
    """softmax(scale q k^T + mask) v, and the logarithms of the sums of exponentials.

    `scale` is 1 / sqrt(depth) unless it is given. Raises TypeError and ValueError for operands that do not fit.
    """
    qs, ks, vs, more, factor = _checked(q, k, v, mask, scale, dropout)
    out = _by_query(qs.shape[:3], vs.shape[3], qs.dtype)
    logs = np.empty(qs.shape[:3], qs.dtype)
    _native.contract_attention(
        [qs, ks, vs, out], more, logs, factor, bool(causal), checked(threads), _level(level)
    )
    return like(out, q), like(logs, q)


def attention_backward(
    gradient: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Array,
    *,
    causal: bool = False,
    scale: float | None = None,
    mask: Array | None = None,
    dropout: float = 0.0,
    threads: int = 1,
    level: str | None = None,
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v, from that of the result of `attention` and from what it returned."""
    qs, ks, vs, more, factor = _checked(q, k, v, mask, scale, dropout)
    gs, os = array_of(gradient, "attention", "gradient"), array_of(out, "attention", "out")
    logs = np.ascontiguousarray(array_of(logsumexp, "attention", "logsumexp"))
    shape = (*qs.shape[:3], vs.shape[3])
    for name, x, expected in (("gradient", gs, shape), ("out", os, shape), ("logsumexp", logs, qs.shape[:3])):
        if x.shape != expected or x.dtype != qs.dtype:
            raise ValueError(
                f"attention: {name} is {x.dtype} of shape {x.shape}; {qs.dtype} of shape {expected} is expected"
            )
    found = [_by_query(x.shape[:3], x.shape[3], x.dtype) for x in (qs, ks, vs)]
    _native.contract_attention(
        [qs, ks, vs, os, gs, *found], more, logs, factor, bool(causal), checked(threads), _level(level)
    )
    return like(found[0], q), like(found[1], q), like(found[2], q)


def _by_query(rows: tuple[int, ...], width: int, dtype: np.dtype) -> np.ndarray:
    """A new array (samples, heads, rows, width), in memory (samples, rows, heads, width) as models join heads."""
    samples, heads, count = rows
    return np.empty((samples, count, heads, width), dtype).transpose(0, 2, 1, 3)


def _checked(q, k, v, mask, scale, dropout):
    """The operands as arrays and the scale; TypeError and ValueError for such as do not fit."""
    if dropout:
        raise ValueError(f"attention: dropout {dropout}: only 0 is computed here; drop weights outside")
    qs, ks, vs = (array_of(x, "attention", name) for x, name in ((q, "q"), (k, "k"), (v, "v")))
    if not qs.dtype == ks.dtype == vs.dtype:
        raise TypeError(
            f"attention: q, k and v are of {qs.dtype}, {ks.dtype} and {vs.dtype}: give them one type"
        )
    if {qs.ndim, ks.ndim, vs.ndim} != {4} or ks.shape[:2] != qs.shape[:2] or vs.shape[:3] != ks.shape[:3]:
        shapes = f"{qs.shape}, {ks.shape} and {vs.shape}"
        raise ValueError(
            f"attention: q, k and v of shapes {shapes}: (samples, heads, queries, depth), (samples, heads, keys, depth)"
            " and (samples, heads, keys, width) are expected"
        )
    if ks.shape[3] != qs.shape[3]:
        raise ValueError(f"attention: the last dims of q {qs.shape} and k {ks.shape} must be equal")
    more = None
    if mask is not None:
        more = array_of(mask, "attention", "mask")
        if more.dtype != qs.dtype:
            raise TypeError(f"attention: mask is of {more.dtype} and q of {qs.dtype}: give them one type")
        whole = (*qs.shape[:3], ks.shape[2])
        try:
            more = np.broadcast_to(more, whole)
        except ValueError:
            raise ValueError(
                f"attention: mask of shape {more.shape} cannot be broadcast to {whole}"
            ) from None
    return qs, ks, vs, more, 1 / math.sqrt(max(1, qs.shape[3])) if scale is None else float(scale)
