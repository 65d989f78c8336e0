"""Tensors without numbers, as torch's meta device has them, and the forms of arguments and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from miniapps.partition.pricing.events import Array, KernelCall

META = "meta"


def call_of(target: str, args: Any, kwargs: Any, found: Any) -> KernelCall:
    """The call of an operation of torch with these arguments, which returned `found`."""
    operands = tuple(map(array, tensors((args, kwargs))))
    constants = plain(args), tuple(sorted(plain(kwargs).items()))
    return KernelCall("", target, False, operands, constants, tuple(map(array, tensors(found))))


def empty(shape: Sequence[int], dtype: str | torch.dtype) -> torch.Tensor:
    """A tensor without numbers."""
    of = getattr(torch, dtype) if isinstance(dtype, str) else dtype
    return torch.empty(tuple(shape), dtype=of, device=META)


def form(found: Any, operands: Sequence[torch.Tensor]) -> Any:
    """The form of results: (shape, strides, dtype, number of the operand whose memory a tensor shares or -1, how far
    behind it)."""
    if isinstance(found, tuple | list):
        return [form(each, operands) for each in found]
    if not isinstance(found, torch.Tensor):
        return found
    memory = found.untyped_storage()._cdata
    shared = next((k for k, x in enumerate(operands) if x.untyped_storage()._cdata == memory), -1)
    offset = found.storage_offset() - (operands[shared].storage_offset() if shared >= 0 else 0)
    return tuple(found.shape), found.stride(), found.dtype, shared, offset


def formed(form: Any, operands: Sequence[torch.Tensor]) -> Any:
    """New results of a form."""
    if isinstance(form, list):
        return tuple(formed(each, operands) for each in form)
    if not isinstance(form, tuple):
        return form
    shape, strides, dtype, shared, offset = form
    if shared < 0:
        return torch.empty_strided(shape, strides, dtype=dtype, device=META)
    return operands[shared].as_strided(shape, strides, operands[shared].storage_offset() + offset)


def array(x: torch.Tensor) -> Array:
    """Type, shape and layout of a tensor."""
    return Array(str(x.dtype).removeprefix("torch."), tuple(x.shape), x.is_contiguous())


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in nested tuples, lists and dicts."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from tensors(each)
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))


def plain(value: Any) -> Any:
    """The value with "%" for each tensor."""
    if isinstance(value, torch.Tensor):
        return "%"
    if isinstance(value, tuple | list):
        return tuple(map(plain, value))
    return {key: plain(each) for key, each in value.items()} if isinstance(value, dict) else value
