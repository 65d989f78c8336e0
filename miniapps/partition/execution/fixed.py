"""Operations of a plan with the bits of any processor: in the place of functions of torch that follow it.

    f = fixed("gelu", kwargs, threads)      # None: torch's function keeps its bits, or no such operation is known

Functions of an element are those of `kernels.contract.elements`, layer norm and softmax those of
`kernels.contract.norms`. Each operation of torch between them rounds once, so it cannot be fused with another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from kernels.contract import elements, norms

# Of `kernels.contract.elements`, as torch has them; the square root too, since torch's may be MKL's, which rounds
# otherwise with other instruction sets.
ELEMENTS = ("erf", "exp", "log", "sigmoid", "sqrt", "tanh")


def fixed(name: str, kwargs: Mapping[str, Any], threads: int) -> Callable | None:
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
    return partial(ROWS[name], threads) if name in ROWS else None


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
    return elements.element("gelu_slope", x, factor=gradient)


def _inverse_root(x):
    return torch.div(1.0, element("sqrt", x))


POINTWISE: dict[str, Callable] = {
    "rsqrt": _inverse_root,
    "reciprocal": lambda x: torch.div(1.0, x),
    "square": lambda x: torch.mul(x, x),
    "rsub": lambda x, other: torch.sub(other, x),
    "sigmoid_backward": lambda gradient, y: torch.mul(gradient, torch.mul(torch.sub(1.0, y), y)),
    "silu": lambda x: torch.mul(x, element("sigmoid", x)),
    "native_dropout_backward": lambda gradient, kept, scale: torch.mul(
        gradient, torch.mul(kept.to(gradient.dtype), scale)
    ),
    "tanh_backward": lambda gradient, y: torch.mul(gradient, torch.sub(1.0, torch.mul(y, y))),
}


# ---- rows, with torch's signatures


def _softmax(threads: int, x, dim: int, half: bool, *, log: bool):
    return norms.softmax(x, dim, log, threads=threads)


def _softmax_backward(threads: int, gradient, y, dim: int, dtype, *, log: bool):
    return norms.softmax_backward(gradient, y, dim, log, threads=threads)


def _layer_norm(threads: int, x, shape: Sequence[int], weight, bias, eps: float):
    return norms.layer_norm(x, shape, weight, bias, eps, threads=threads)


def _layer_norm_backward(threads: int, gradient, x, shape: Sequence[int], mean, scale, weight, bias, wanted):
    return norms.layer_norm_backward(gradient, x, shape, mean, scale, weight, wanted, threads=threads)


ROWS: dict[str, Callable] = {
    "_softmax": partial(_softmax, log=False),
    "_log_softmax": partial(_softmax, log=True),
    "_softmax_backward_data": partial(_softmax_backward, log=False),
    "_log_softmax_backward_data": partial(_softmax_backward, log=True),
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
}
