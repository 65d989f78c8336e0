"""Copies the arguments of a call with their types, strides, offsets in storages, and shared storages.

A call may write to its arguments and must not see the writes of an earlier call, so every call gets copies. Each
storage begins at a chosen address.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from kernels.torchops.cases.inputs import LINE

COPIED = (torch.Tensor, torch.nn.Parameter)  # other classes of tensors are copied by their clone()


@dataclass(frozen=True)
class Named:
    """A tensor among the arguments of a call: `argument` is the number of its argument, `name` names its place there;
    `flagged`: whether it was given with requires_grad."""

    name: str
    argument: int
    tensor: torch.Tensor
    flagged: bool


def as_tensors(given: Any) -> Any:
    """`given` with a tensor in place of every array of NumPy, in the same memory, also in lists, tuples and dicts.

    Arrays with negative strides, which tensors do not support, are copied. Raises TypeError for an array of a type that
    torch lacks.
    """
    return _rebuilt(given, lambda x: _tensor(x) if isinstance(x, np.ndarray) else x)


def copies(
    arguments: Sequence[Any],
    device: str,
    offset: int = 0,
    rows: np.ndarray | None = None,
    batch: Sequence[int] = (),
) -> tuple[list[Any], list[Named]]:
    """Copies of the arguments, and the tensors among them.

    `offset`: bytes from a multiple of LINE to every storage (in host memory). `rows`: the samples of the arguments
    `batch`, in this order, instead of all. Raises ValueError where samples share memory.
    """
    storages: dict[int, Any] = {}
    named: list[Named] = []
    memo: dict[int, Any] = {}

    def copied(number: int) -> Any:
        places = iter(range(1 << 30))

        def leaf(x: Any) -> Any:
            if not isinstance(x, torch.Tensor):
                return _deep(x, memo)
            twin = _twin(x, storages, device, offset)
            if rows is not None and number in batch:
                twin = _taken(twin, x, rows, number)
            if type(x) is torch.nn.Parameter:
                twin = torch.nn.Parameter(twin, requires_grad=False)
            place = next(places)
            inner = "" if x is arguments[number] else f", tensor {place}"
            named.append(Named(f"argument {number}{inner}", number, twin, x.requires_grad))
            return twin

        return _rebuilt(arguments[number], leaf)

    return [copied(number) for number in range(len(arguments))], named


def _rebuilt(given: Any, leaf: Any) -> Any:
    """`given` with `leaf(x)` for every x in it that is not itself a list, tuple, dict or dataclass."""
    if type(given) in (list, tuple):
        return type(given)(_rebuilt(x, leaf) for x in given)
    if isinstance(given, tuple) and hasattr(given, "_fields"):
        return type(given)(*(_rebuilt(x, leaf) for x in given))
    if type(given) is dict:
        return {key: _rebuilt(x, leaf) for key, x in given.items()}
    if is_dataclass(given) and not isinstance(given, type) and all(each.init for each in fields(given)):
        return replace(
            given, **{each.name: _rebuilt(getattr(given, each.name), leaf) for each in fields(given)}
        )
    return leaf(given)


def _tensor(array: np.ndarray) -> torch.Tensor:
    if any(step < 0 for step in array.strides) or not array.dtype.isnative:
        array = np.array(array, array.dtype.newbyteorder("="), order="C")
    if any(step % array.itemsize for step in array.strides) or not array.flags.aligned:
        array = np.array(array, order="C")
    if not array.flags.writeable:
        array = np.lib.stride_tricks.as_strided(_writable(array), array.shape, array.strides)
    if array.dtype.name == "bfloat16" or array.dtype.name.startswith("float8"):  # of ml_dtypes
        words = np.uint16 if array.itemsize == 2 else np.uint8
        return torch.from_numpy(array.view(words)).view(getattr(torch, array.dtype.name))
    return torch.from_numpy(array)


def _writable(array: np.ndarray) -> np.ndarray:
    """A copy of the memory from the first to the last element of `array`."""
    reach = 1 + sum(
        (n - 1) * step // array.itemsize for n, step in zip(array.shape, array.strides, strict=True) if n
    )
    flat = np.lib.stride_tricks.as_strided(array, (max(reach, 0),), (array.itemsize,), writeable=False)
    return flat.copy()


def _twin(x: torch.Tensor, storages: dict[int, Any], device: str, offset: int) -> torch.Tensor:
    """A copy of `x` in a new storage; tensors that share a storage have copies that share one too."""
    if (
        type(x) not in COPIED
        or x.layout is not torch.strided
        or x.is_quantized
        or getattr(x, "is_nested", False)
    ):
        return x.detach().clone().to(device)
    x = x.detach()
    given = x.untyped_storage()
    key = given.data_ptr() or -id(given)
    if key not in storages:
        storages[key] = _storage(given, device, offset)
    twin = torch.empty(0, dtype=x.dtype, device=device)
    twin.set_(storages[key], x.storage_offset(), x.shape, x.stride())
    if x.is_conj():
        twin = torch._conj(twin)
    return torch._neg_view(twin) if x.is_neg() else twin


def _storage(given: Any, device: str, offset: int) -> Any:
    count = given.nbytes()
    octets = torch.empty(0, dtype=torch.uint8, device=given.device).set_(given, 0, (count,), (1,))
    if device == "cpu":
        memory = np.empty(count + 2 * LINE, np.uint8)
        start = -memory.ctypes.data % LINE + offset
        twin = torch.frombuffer(memory, dtype=torch.uint8, offset=start, count=max(1, count))
    else:
        twin = torch.empty(max(1, count), dtype=torch.uint8, device=device)
    if count:
        twin[:count].copy_(octets)
    return twin.untyped_storage()


def _taken(twin: torch.Tensor, x: torch.Tensor, rows: np.ndarray, number: int) -> torch.Tensor:
    """The first len(rows) samples of `twin`, filled with the samples `rows` of `x`."""
    part = twin[: len(rows)]
    if part.stride()[0] == 0 or len(rows) == 0:  # all samples are the same memory
        return part
    # Expanded dims other than the samples' are written once.
    own = part[(slice(None), *(slice(0, 1) if step == 0 else slice(None) for step in part.stride()[1:]))]
    source = x.detach()[torch.from_numpy(np.ascontiguousarray(rows)).to(x.device)]
    source = source[tuple(slice(0, n) for n in own.shape)]
    if torch._debug_has_internal_overlap(own) == 1 or _overlaps(own):
        raise ValueError(f"samples of argument {number} share memory")
    own.copy_(source)
    return part


def _overlaps(x: torch.Tensor) -> bool:
    """Whether two elements may share memory, by their strides."""
    reach = 1
    for step, n in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n > 1):
        if step < reach:
            return True
        reach = step * (n - 1) + reach
    return False


def _deep(x: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(x, memo)
    except Exception:  # objects that cannot be copied are passed on
        return x
