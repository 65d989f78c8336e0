"""What products accept: arrays of NumPy and tensors of torch on the CPU, by the memory that they have."""

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

    Only what is misaligned or of foreign byte order is copied. TypeError for all else, with operation and name.
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
    """Both operands of a product, with equal leading dims, by strides of 0 if need be, and its shape."""
    x, y = pair("matmul", a, b)
    shape = product(x.shape, y.shape)
    if x.shape[:-2] != y.shape[:-2]:
        x = np.broadcast_to(x, (*shape[:-2], *x.shape[-2:]))
        y = np.broadcast_to(y, (*shape[:-2], *y.shape[-2:]))
    return x, y, shape


def summed(x: Any, dims: int | Sequence[int]) -> tuple[np.ndarray, np.ndarray, int]:
    """x, the same with its dims in the order (dims that stay, dims that are summed), and how many stay."""
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
    """What `compute(target)` writes into its target of this shape: `out`, or a new array of the kind of `given`.

    An `out` that may share memory with an operand is written when all is computed, and so is one that is not contiguous
    unless there may be `gaps`. Raises TypeError and ValueError for
    one that cannot hold the result.
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
    """`x` as what was given: an array, or a tensor in the same memory."""
    if isinstance(given, np.ndarray):
        return x
    import torch

    return torch.from_numpy(x)


def _memory(x: Any, what: str, name: str) -> np.ndarray:
    """The same memory as an array of NumPy; called for every operand of every product, so that it must be quick."""
    if isinstance(x, np.ndarray):
        memory = x
    else:
        try:
            memory = x.numpy()  # a tensor on the CPU that needs no gradient, as most
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
            f"{what}: {name} is on {device}: only tensors on cpu are taken; `.cpu()` copies one there"
        )
    try:
        return x.detach().numpy()
    except TypeError:  # a type that NumPy does not have
        dtype = str(x.dtype).removeprefix("torch.")
        raise TypeError(f"{what}: {name} is of {dtype}: convert it to one of {', '.join(TYPES)}") from None


def _plain(x: np.ndarray) -> bool:
    """Whether every element is a number of this machine, at a multiple of its size from the first."""
    return x.flags.aligned and x.dtype.isnative
