"""Operations of a plan with the bits of any processor: in the place of functions of torch that follow it.

    f = fixed("gelu", kwargs, rowsum)       # None: torch's function keeps its bits, or no such operation is known

Sums are `rowsum`, a chain over the summed dims. Functions of an element are those of `kernels.contract.elements`. Each
operation of torch between them rounds once, so it cannot be fused with another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any

import torch

from kernels.contract import elements

# Of `kernels.contract.elements`, as torch has them; the square root too, since torch's may be MKL's, which rounds
# otherwise with other instruction sets.
ELEMENTS = ("erf", "exp", "log", "sigmoid", "sqrt", "tanh")


def fixed(name: str, kwargs: Mapping[str, Any], rowsum: Callable) -> Callable | None:
    """The function for an operation, to be called like torch's; None if there is none with these arguments."""
    if "alpha" in kwargs:
        return {"add": _add, "sub": _subtract}.get(name)
    if name in ELEMENTS:
        return lambda x: element(name, x)
    if name in ("gelu", "gelu_backward"):
        return (
            None if kwargs.get("approximate", "none") != "none" else {"gelu": _gelu}.get(name, _gelu_backward)
        )
    if name in POINTWISE:
        return POINTWISE[name]
    if name in ROWS:
        function = ROWS[name]
        return lambda *args: function(rowsum, *args)
    return None


# ---- elements


def element(name: str, x: torch.Tensor) -> Any:
    """A function of `kernels.contract.elements`: a tensor."""
    return elements.element(name, x)


def _add(a, b, *, alpha=1):
    return torch.add(a, torch.mul(b, alpha) if isinstance(b, torch.Tensor) else b * alpha)


def _subtract(a, b, *, alpha=1):
    return torch.sub(a, torch.mul(b, alpha) if isinstance(b, torch.Tensor) else b * alpha)


def _gelu(x, *, approximate="none"):
    return element("gelu", x)


def _gelu_backward(gradient, x, *, approximate="none"):
    return torch.mul(gradient, element("gelu_slope", x))


def _inverse_root(x):
    return torch.div(1.0, element("sqrt", x))


POINTWISE: dict[str, Callable] = {
    "rsqrt": _inverse_root,
    "reciprocal": lambda x: torch.div(1.0, x),
    "square": lambda x: torch.mul(x, x),
    "rsub": lambda x, other: torch.sub(other, x),
    "sigmoid_backward": lambda gradient, y: torch.mul(gradient, torch.mul(torch.sub(1.0, y), y)),
    "silu": lambda x: torch.mul(x, element("sigmoid", x)),
    "tanh_backward": lambda gradient, y: torch.mul(gradient, torch.sub(1.0, torch.mul(y, y))),
}


# ---- rows: of dim `dim`, or of the last dims


def _softmax(rowsum, x, dim: int, half: bool):
    powers = element("exp", torch.sub(x, torch.amax(x, dim, True)))
    return torch.div(powers, rowsum(powers, [dim], True))


def _log_softmax(rowsum, x, dim: int, half: bool):
    apart = torch.sub(x, torch.amax(x, dim, True))
    return torch.sub(apart, element("log", rowsum(element("exp", apart), [dim], True)))


def _softmax_backward(rowsum, gradient, y, dim: int, dtype):
    product = torch.mul(gradient, y)
    return torch.sub(product, torch.mul(y, rowsum(product, [dim], True)))


def _log_softmax_backward(rowsum, gradient, y, dim: int, dtype):
    return torch.sub(gradient, torch.mul(element("exp", y), rowsum(gradient, [dim], True)))


def _layer_norm(rowsum, x, shape: Sequence[int], weight, bias, eps: float):
    """(y, mean, 1 / sqrt(variance + eps)) over the last dims, of `shape`."""
    dims, count = list(range(x.dim() - len(shape), x.dim())), prod(shape)
    mean = torch.div(rowsum(x, dims, True), count)
    apart = torch.sub(x, mean)
    scale = _inverse_root(torch.add(torch.div(rowsum(torch.mul(apart, apart), dims, True), count), eps))
    y = torch.mul(apart, scale)
    y = y if weight is None else torch.mul(y, weight)
    return y if bias is None else torch.add(y, bias), mean, scale


def _layer_norm_backward(rowsum, gradient, x, shape: Sequence[int], mean, scale, weight, bias, wanted):
    """The gradients of x, weight and bias, those that are `wanted`."""
    rank = x.dim()
    dims, others, count = list(range(rank - len(shape), rank)), list(range(rank - len(shape))), prod(shape)
    unit = torch.mul(torch.sub(x, mean), scale)
    of_x = of_weight = of_bias = None
    if wanted[0]:
        slopes = gradient if weight is None else torch.mul(gradient, weight)
        along = torch.mul(unit, rowsum(torch.mul(slopes, unit), dims, True))
        both = torch.div(torch.add(rowsum(slopes, dims, True), along), count)
        of_x = torch.mul(torch.sub(slopes, both), scale)
    if wanted[1]:
        of_weight = rowsum(torch.mul(gradient, unit), others)
    if wanted[2]:
        of_bias = rowsum(gradient, others)
    return of_x, of_weight, of_bias


ROWS: dict[str, Callable] = {
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "_softmax_backward_data": _softmax_backward,
    "_log_softmax_backward_data": _log_softmax_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
}
