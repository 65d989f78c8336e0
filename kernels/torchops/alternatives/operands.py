"""What all operators of this folder share: checks of their arguments, torch's rules of autocast, sums of slices."""

from __future__ import annotations

import math

import torch

from kernels.torchops.alternatives.opaque import INDICES, checked_order

HALVES = (torch.float16, torch.bfloat16)
# Operators that torch's autocast of CUDA computes in float32 (the first), or in the widest type of the arguments. Its
# autocast of the CPU changes none of the operators of this folder.
IN_FLOAT32, IN_WIDEST = ("sum", "cumsum"), ("index_put", "scatter_add")

# ---- checks


def along(
    what: str, input: torch.Tensor, dim: int, index: torch.Tensor, order: str
) -> tuple[int, torch.Tensor]:
    """(dim counted from 0, index as (n,)), after checks."""
    checked_order(order)
    floating(what, input)
    index = integers(what, index)
    if index.ndim > 1:
        raise ValueError(f"fpna.torch.{what}: index has shape {tuple(index.shape)}; (n,) is expected")
    return dimension(what, input, dim), index.reshape(-1)


def dimension(what: str, x: torch.Tensor, dim: int) -> int:
    most = max(x.ndim, 1)
    if not -most <= dim < most:
        raise IndexError(f"fpna.torch.{what}: dim {dim} of a tensor of shape {tuple(x.shape)}")
    return dim % most


def floating(what: str, x: torch.Tensor) -> None:
    if x.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
        raise TypeError(
            f"fpna.torch.{what} cannot add {x.dtype}: float64, float32, float16 or bfloat16 are expected"
        )


def same_type(what: str, x: torch.Tensor, y: torch.Tensor) -> None:
    floating(what, x)
    if x.dtype != y.dtype or x.device != y.device:
        raise TypeError(
            f"fpna.torch.{what}: {y.dtype} on {y.device} cannot be added to {x.dtype} on {x.device}"
        )


def integers(what: str, index: torch.Tensor) -> torch.Tensor:
    if index.dtype not in INDICES:
        raise TypeError(
            f"fpna.torch.{what}: an index of {index.dtype}; torch.int64 or torch.int32 is expected, and a mask as "
            "mask.nonzero(as_tuple=True)"
        )
    return index


def cast(what: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """`tensors` in the types to which torch's autocast casts them for the operator `what`."""
    kind = tensors[0].device.type
    if kind != "cuda" or not torch.is_autocast_enabled(kind):
        return tensors
    types = {x.dtype for x in tensors}
    if what in IN_FLOAT32 or (what in IN_WIDEST and types == {torch.float32, torch.get_autocast_dtype(kind)}):
        return tuple(wide(x) for x in tensors)
    return tensors


def wide(x: torch.Tensor) -> torch.Tensor:
    """`x` in the type in which its elements are added."""
    return converted(x, torch.float32) if x.dtype in HALVES else x


def converted(x: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """`x` in another type, whatever the floating-point environment; `x` itself for its own type, and for None."""
    return x if dtype in (None, x.dtype) else torch.ops.fpna.converted(x, dtype)


# ---- sums of slices


def add(whole: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, order: str) -> torch.Tensor:
    """The slices of `source` along `dim`, added to those of `whole`."""
    front = whole.movedim(dim, 0)
    return rows_added(front, index, source.movedim(dim, 0), front.shape, order).movedim(0, dim)


def rows_added(start, index, source, shape, order: str) -> torch.Tensor:
    columns = math.prod(shape[1:])
    rows = source.reshape(source.shape[0], columns)
    begin = None if start is None else start.reshape(shape[0], columns)
    return torch.ops.fpna.add_rows(begin, index, rows, shape[0], order).reshape(shape)


def take(whole: torch.Tensor, dim: int, index: torch.Tensor, order: str) -> torch.Tensor:
    """Slices of `whole` along `dim`."""
    front = whole.movedim(dim, 0)
    rows = front.reshape(front.shape[0], math.prod(front.shape[1:]))
    taken = torch.ops.fpna.take_rows(rows, index, order)
    return taken.reshape(index.shape[0], *front.shape[1:]).movedim(0, dim)


def expanded(what: str, values: torch.Tensor, shape: tuple[int, ...], order: str) -> torch.Tensor:
    """`values` broadcast to `shape`, so that the gradient of each is one sum in `order`."""
    have = (1,) * (len(shape) - values.ndim) + tuple(values.shape)
    if len(have) > len(shape) or any(h not in (1, want) for h, want in zip(have, shape, strict=True)):
        raise ValueError(
            f"fpna.torch.{what}: values of shape {tuple(values.shape)} cannot be broadcast to {tuple(shape)}"
        )
    cut = len(shape)
    while cut and have[cut - 1] == shape[cut - 1]:
        cut -= 1
    if cut == 0:
        return values.reshape(shape)
    count = math.prod(have[:cut])
    index = torch.arange(count, device=values.device).reshape(have[:cut]).expand(shape[:cut]).reshape(-1)
    return take(values.reshape(count, *shape[cut:]), 0, index, order).reshape(shape)
