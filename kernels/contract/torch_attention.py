"""Attention by torch's CPU kernel, which cuts tokens by the number of samples, heads and threads."""

from __future__ import annotations

from typing import Any, Unpack

from kernels.contract.heads import Heads, How, heads_of
from kernels.contract.operands import Array, like
from kernels.contract.promises import promised
from kernels.contract.torch import in_threads, tensors
from kernels.missing import missing


@promised("attention", "torch", backend="torch", available=missing("torch"))
def attention(q: Array, k: Array, v: Array, *, threads: int = 1, **how: Unpack[How]) -> tuple[Array, Array]:
    """torch's flash attention, and the logarithms of the sums of exponentials; depth and width must be equal."""
    import torch

    of = _square(heads_of(q, k, v, **how))
    mask, *given = _tensors(of)
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with in_threads(threads), torch.no_grad():
        out, logs = kernel(*given, 0.0, of.causal, attn_mask=mask, scale=of.scale)
    return like(out.numpy(), q), like(logs.numpy(), q)


@promised("attention_backward", "torch", backend="torch", available=missing("torch"))
def attention_backward(
    gradient: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Array,
    *,
    threads: int = 1,
    **how: Unpack[How],
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v by torch."""
    import torch

    of = _square(heads_of(q, k, v, **how))
    gradients, *rest = of.given(gradient, out, logsumexp)
    mask, *given = _tensors(of)
    last = tensors(gradients)[0]
    kernel = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    with in_threads(threads), torch.no_grad():
        found = kernel(last, *given, *tensors(*rest), 0.0, of.causal, attn_mask=mask, scale=of.scale)
    dq, dk, dv = (like(x.numpy(), q) for x in found)
    return dq, dk, dv


def _square(of: Heads) -> Heads:
    if of.q.shape[3] != of.v.shape[3]:
        raise ValueError(
            f"attention: q has depth {of.q.shape[3]} and v width {of.v.shape[3]}: torch's kernel needs them equal; "
            "use the variant own"
        )
    return of


def _tensors(of: Heads) -> list[Any]:
    """The mask or None, q, k and v."""
    return [None if of.mask is None else tensors(of.mask)[0], *tensors(of.q, of.k, of.v)]
