"""Products whose bits depend on the contracted length alone: neither cuts of the other dims nor threads change them.

    c = matmul(a, b)                                   # (..., rows, depth), (..., depth, columns)
    c = matmul(a, b, out, variant="torch", threads=2)
    y = conv(x, w, stride=2, padding=[(1, 0), 1], dilation=1, groups=1)    # 1 to 3 spatial dims
    gx = conv_input(gy, w, x.shape[2:], stride=2, padding=[(1, 0), 1])     # also the transposed convolution
    gw = conv_weight(x, gy, w.shape[2:], stride=2, padding=[(1, 0), 1])
    s = rowsum(x, dims=(0, 1))
    y, lse = attention(q, k, v, causal=True)            # q, k, v (samples, heads, tokens, ...)
    gq, gk, gv = attention_backward(gy, q, k, v, y, lse, causal=True)
    z = flat(torch.sigmoid, x)                          # functions of torch, elementwise
    z = element("sigmoid", x)                           # our own, of fixed operations, float32
    g = matmul(a.T, b, blocks=[32, 32, 16])             # chains over blocks of k, added by the tree of block-tree

    get("matmul", "own")(a, b, out=None, threads=1)     # by kernels.registry; each has own, torch and reference
    get("pointwise", "own")(torch.sigmoid, x)           # pointwise has own and torch

Operands are arrays of NumPy or tensors of torch on the CPU, float32 or float64, all of one type, with any strides: a
transposed operand is a view and is not copied. The result is `out`, which may have any strides, or a new array of the
kind of the first operand. Operations on tensors are not recorded for gradients. `flat` accepts only tensors.

**The chain.** An element over K products is s(0) + s(1) + ... from the left. s(p) is the chain s = fma(a[k], b[k], s)
from +0.0 over the k of piece p, ascending. A piece has 256 products, the last piece the rest. K = 0 gives +0.0. Every
NaN of a result is the one without sign and payload. Rounding is to nearest and subnormals are kept, whatever the
settings of the thread are. See docs/explanation/contract.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from kernels.contract import (
    native,
    native_attention,
    pointwise,
    reference,
    reference_attention,
    torch,
    torch_attention,
)
from kernels.contract.elements import element
from kernels.contract.operands import Array
from kernels.contract.pointwise import flat
from kernels.registry import get

from kernels.contract import cupy, cupy_attention  # isort: skip  (last: `registry.get` takes the first that can run)

__all__ = [
    "attention", "attention_backward", "conv", "conv_input", "conv_weight", "cupy", "cupy_attention", "element", "flat",
    "matmul", "native", "native_attention", "pointwise", "reference", "reference_attention", "rowsum", "torch",
    "torch_attention",
]  # fmt: skip


_variant = cache(get)  # a search in the registry takes longer than a small product


def matmul(a: Array, b: Array, out: Array | None = None, *, variant: str = "own", **options: Any) -> Array:
    """The product of matrices by the variant of that name, with its options (`threads=1`); shapes as in the module."""
    return _variant("matmul", variant)(a, b, out, **options)


def conv(x: Array, w: Array, out: Array | None = None, *, variant: str = "own", **options: Any) -> Array:
    """The convolution of images (samples, channels, *spatial) with weights (output channels, channels of a group,
    *window) by the variant of that name; options: `stride`, `dilation`, `padding`, `groups`, `threads`."""
    return _variant("conv", variant)(x, w, out, **options)


def conv_input(
    gradient: Array,
    w: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    variant: str = "own",
    **options: Any,
) -> Array:
    """The gradient of images of spatial shape `size`, from the gradient of the output of `conv` with these options."""
    return _variant("conv_input", variant)(gradient, w, size, out, **options)


def conv_weight(
    x: Array,
    gradient: Array,
    size: Sequence[int],
    out: Array | None = None,
    *,
    variant: str = "own",
    **options: Any,
) -> Array:
    """The gradient of weights with a window of shape `size`, from the gradient of the output of `conv` with these
    options."""
    return _variant("conv_weight", variant)(x, gradient, size, out, **options)


def rowsum(
    x: Array, dims: int | Sequence[int], out: Array | None = None, *, variant: str = "own", **options: Any
) -> Array:
    """The sums of x over these dims by the variant of that name, with its options (`threads=1`)."""
    return _variant("rowsum", variant)(x, dims, out, **options)


def attention(q: Array, k: Array, v: Array, *, variant: str = "own", **options: Any) -> tuple[Array, Array]:
    """softmax(scale q k^T + mask) v of each sample and head, and the logarithms of the sums of exponentials, by the
    variant of that name.

    q (samples, heads, queries, depth), k (samples, heads, keys, depth) and v (samples, heads, keys, width) give
    (samples, heads, queries, width) and (samples, heads, queries). Options: `causal`, `scale`, `mask`, `threads`.
    Raises TypeError and ValueError for operands that do not fit, and for dropout.
    """
    return _variant("attention", variant)(q, k, v, **options)


def attention_backward(
    gradient: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    logsumexp: Array,
    *,
    variant: str = "own",
    **options: Any,
) -> tuple[Array, Array, Array]:
    """The gradients of q, k and v, from the gradient of attention's result and the two arrays that `attention`
    returned; options as there."""
    return _variant("attention_backward", variant)(gradient, q, k, v, out, logsumexp, **options)
