"""Attention in C++ (kernels/native/contract_attention.hpp): the bits of a head depend on its own q, k and v alone.

`threads` and `level` as in `kernels.contract.native`; neither changes bits.
"""

from __future__ import annotations

from typing import Unpack

import numpy as np

from kernels import _native
from kernels.contract.heads import How, heads_of
from kernels.contract.native import level_number
from kernels.contract.operands import Array, like
from kernels.contract.promises import promised
from kernels.contract.shapes import Shape
from kernels.threads import checked

WHY = "each head alone: chains of fused multiply-adds, and an exponential of our own, equal for all vector widths"


@promised("attention", "own", backend="native", why=WHY)
def attention(
    q: Array, k: Array, v: Array, *, threads: int = 1, level: str | None = None, **how: Unpack[How]
) -> tuple[Array, Array]:
    """softmax(scale q k^T + mask) v, and the logarithms of the sums of exponentials. No sum has terms of two heads, so
    the numbers of queries and keys, depth and width alone determine the order."""
    of = heads_of(q, k, v, **how)
    out = _joined(of.shape, of.q.dtype)
    logs = np.empty(of.rows, of.q.dtype)
    _native.contract_attention(
        [of.q, of.k, of.v, out], of.mask, logs, of.scale, of.causal, checked(threads), level_number(level)
    )
    return like(out, q), like(logs, q)


@promised("attention_backward", "own", backend="native", why=WHY)
def attention_backward(
    gradient: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Array,
    *,
    threads: int = 1,
    level: str | None = None,
    **how: Unpack[How],
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v (Dao et al. 2022, FlashAttention, algorithm 4), with the guarantee of `attention`."""
    of = heads_of(q, k, v, **how)
    gradients, outs, logs = of.given(gradient, out, logsumexp)
    arrays = [of.q, of.k, of.v, outs, gradients, *(_joined(x.shape, x.dtype) for x in (of.q, of.k, of.v))]
    _native.contract_attention(
        arrays,
        of.mask,
        np.ascontiguousarray(logs),
        of.scale,
        of.causal,
        checked(threads),
        level_number(level),
    )
    return like(arrays[5], q), like(arrays[6], q), like(arrays[7], q)


def _joined(shape: Shape, dtype: np.dtype) -> np.ndarray:
    """A new array of this shape with the memory order (samples, rows, heads, width), in which models join heads."""
    samples, heads, rows, width = shape
    return np.empty((samples, rows, heads, width), dtype).transpose(0, 2, 1, 3)
