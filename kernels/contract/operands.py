"""Operands of products: converts arrays of NumPy and tensors of torch on the CPU to arrays in the same memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from kernels.contract.shapes import Shape, product, stay

if TYPE_CHECKING:
    import torch

Array: TypeAlias = "np.ndarray | torch.Tensor"
TYPES = ("float32", "float64")


def array_of(x: Any, what: str, name: str) -> np.ndarray:
    """`x` as an array of NumPy in the same memory: an array, or a tensor on the CPU, of float32 or float64.

    Copies only misaligned arrays and foreign byte orders. Raises TypeError, with operation and name, for others.
    """
    x = _memory(x, what, name)
    return x if _plain(x) else x.astype(x.dtype.newbyteorder("="), order="C")


def pair(what: str, a: Any, b: Any, names: tuple[str, str] = ("a", "b")) -> tuple[np.ndarray, np.ndarray]:
    """Both operands as arrays; TypeError unless they have one type."""
    x, y = array_of(a, what, names[0]), array_of(b, what, names[1])
    if x.dtype != y.dtype:
        raise TypeError(
            f"{what}: {names[0]} is of {x.dtype} and {names[1]} of {y.dtype}: convert one to the type of the other"
        )
    return x, y


def matrices(a: Any, b: Any) -> tuple[np.ndarray, np.ndarray, Shape]:
    """Both operands of a product, their leading dims broadcast by strides of 0, and the product's shape."""
    x, y = pair("matmul", a, b)
    shape = product(x.shape, y.shape)
    if x.shape[:-2] != y.shape[:-2]:
        x = np.broadcast_to(x, (*shape[:-2], *x.shape[-2:]))
        y = np.broadcast_to(y, (*shape[:-2], *y.shape[-2:]))
    return x, y, shape


def summed(x: Any, dims: int | Sequence[int]) -> tuple[np.ndarray, np.ndarray, int]:
    """(x, x with the summed dims moved last, the number of dims that stay)."""
    xs = array_of(x, "rowsum", "x")
    left, gone = stay(xs.shape, dims)
    return xs, xs.transpose(*left, *gone), len(left)


def written(
    what: str,
    compute: Callable[[np.ndarray], None],
    shape: Shape,
    operands: tuple[np.ndarray, ...],
    given: Array,
    out: Array | None,
    gaps: bool = True,
) -> Array:
    """Calls `compute(target)` for a target of this shape; returns `out`, or a new array of the kind of `given`.

    `compute` writes into a temporary array, copied to `out` at the end, if `out` may share memory with an operand, or
    is not contiguous and `gaps` is False. Raises TypeError and ValueError for an `out` that cannot hold the result.
    """
    dtype = operands[0].dtype
    if out is None:
        target = np.empty(shape, dtype)
        compute(target)
        return like(target, given)
    memory = _memory(out, what, "out")
    if memory.dtype != dtype or memory.shape != shape:
        raise ValueError(
            f"{what}: out is {memory.dtype} of shape {memory.shape}; {dtype} of shape {shape} is expected"
        )
    if not memory.flags.writeable:
        raise ValueError(f"{what}: out is read-only")
    aside = not _plain(memory) or not (gaps or memory.flags.c_contiguous)
    aside = aside or any(np.may_share_memory(memory, x) for x in operands)
    target = np.empty(shape, dtype) if aside else memory
    compute(target)
    if aside:
        memory[...] = target
    return out


def like(x: np.ndarray, given: Array) -> Array:
    """`x` as the kind of `given`: an array, or a tensor in the same memory."""
    if isinstance(given, np.ndarray):
        return x
    import torch

    return torch.from_numpy(x)


def _memory(x: Any, what: str, name: str) -> np.ndarray:
    """An array of NumPy in the same memory; fast, since every operand of every product passes here."""
    if isinstance(x, np.ndarray):
        memory = x
    else:
        try:
            memory = x.numpy()  # works for a tensor on the CPU without gradient, the usual case
        except (AttributeError, TypeError, RuntimeError):
            memory = _of_tensor(x, what, name)
    if memory.dtype.char not in "fd":
        raise TypeError(f"{what}: {name} is of {memory.dtype}: convert it to one of {', '.join(TYPES)}")
    return memory


def _of_tensor(x: Any, what: str, name: str) -> np.ndarray:
    device = getattr(x, "device", None)
    if device is None or not hasattr(x, "detach"):
        raise TypeError(
            f"{what}: {name} is {type(x).__name__}: an array of NumPy or a tensor of torch is expected"
        )
    if device.type != "cpu":
        raise TypeError(
            f"{what}: {name} is on {device}: only tensors on cpu are accepted; `.cpu()` copies one there"
        )
    try:
        return x.detach().numpy()
    except TypeError:  # a type that NumPy does not have
        dtype = str(x.dtype).removeprefix("torch.")
        raise TypeError(f"{what}: {name} is of {dtype}: convert it to one of {', '.join(TYPES)}") from None


def _plain(x: np.ndarray) -> bool:
    """Whether the array is aligned and has this machine's byte order."""
    return x.flags.aligned and x.dtype.isnative
