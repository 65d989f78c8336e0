"""Convert arrays of other libraries to NumPy or, in GPU memory, to CuPy, without a copy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from kernels.allreduce.execution import device

REMEDY = "pass a C-contiguous array"


def as_array(array: Any, what: str, pairs: bool = False) -> Any:
    """An array of NumPy, torch or CuPy as a NumPy array or, in GPU memory, a CuPy array, without a copy.

    `pairs`: elements may be structures, such as a value and its index. Raises TypeError for other objects."""
    if type(array) is np.ndarray:
        found = array
    elif _is_tensor(array):
        array = array.detach()  # a tensor in an autograd graph does not share its memory
        found = device.view(array) if device.is_on_device(array) else _of_torch(array)
    elif device.is_on_device(array):
        found = device.view(array)
    else:
        try:
            found = np.asarray(memoryview(array))
        except TypeError as error:
            raise TypeError(
                f"{what}: {type(array).__name__} is not a buffer; pass an array, or use the lower-case call"
            ) from error
    if found.dtype.hasobject or (found.dtype.names and not pairs):
        raise TypeError(f"{what}: {found.dtype} is not a type of numbers; {REMEDY} of a NumPy number type")
    return found


def numbers(given: Any, what: str) -> Any:
    """Numbers with a bit pattern as an array of NumPy or CuPy.

    Accepts everything that `as_array` accepts, single numbers, a DTensor (the part of this rank), 8-bit floats,
    quantized tensors (their integers), and arrays of other libraries that NumPy can read (jax, pandas). Raises
    TypeError for other objects, with a message that begins with `what`."""
    try:
        array = as_array(_plain(given, what), what)
        if array.dtype in PADDED and array.dtype.itemsize > 10 and np.finfo(np.longdouble).nmant == 63:
            octets = np.array(array, order="C").reshape(-1).view(np.longdouble).view(np.uint8).reshape(-1, 16)
            octets[:, 10:] = 0  # ten of 16 bytes are the number, the others arbitrary
            array = octets.reshape(-1).view(array.dtype).reshape(array.shape)
        return array
    except Exception as error:
        if str(error).startswith(what):
            raise
        raise TypeError(f"{what}: {type(given).__name__}: {' '.join(str(error).split())[:300]}") from error


PADDED = (np.dtype(np.longdouble), np.dtype(np.clongdouble))


def _plain(given: Any, what: str) -> Any:
    """`given` as an object that `as_array` accepts."""
    if type(given) is np.ndarray:
        return given
    if isinstance(given, bool | int | float | complex | np.generic):
        return np.asarray(given)
    if _is_tensor(given):
        tensor = given.detach()
        if hasattr(tensor, "to_local"):
            tensor = tensor.to_local()
        if str(tensor.layout) != "torch.strided":
            raise TypeError(
                f"{what}: a tensor of layout {tensor.layout}: record its values and its indices under two names"
            )
        if tensor.is_meta:
            raise TypeError(f"{what}: a tensor of the device meta has no numbers")
        tensor = tensor.int_repr() if tensor.is_quantized else tensor
        if str(tensor.dtype) == "torch.complex32":  # NumPy lacks this type: both parts
            import torch

            return torch.view_as_real(tensor.resolve_conj())
        return tensor.resolve_conj().resolve_neg()
    if not device.is_on_device(given) and hasattr(type(given), "__array__"):
        return np.asarray(given)
    if isinstance(given, list | tuple | dict | str | set) or given is None:
        raise TypeError(
            f"{what}: {type(given).__name__} has no bit pattern; pass an array, a tensor or a number"
        )
    return given


def _is_tensor(given: Any) -> bool:
    """Whether `given` is a tensor of torch, or of a class derived from it, such as DTensor."""
    return _of_tensors(type(given))  # type: ignore[arg-type]  # classes are hashable


@functools.cache
def _of_tensors(kind: Any) -> bool:
    return any(each.__module__ == "torch" and each.__name__ == "Tensor" for each in kind.__mro__)


def _of_torch(tensor: Any) -> np.ndarray:
    """A tensor in host memory as a NumPy array; bfloat16 and 8-bit floats have the types of ml_dtypes."""
    import ml_dtypes
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        plain: np.ndarray = tensor.numpy()
        return plain
    words: np.ndarray = tensor.view(torch.int16 if name == "bfloat16" else torch.uint8).numpy()
    return words.view(getattr(ml_dtypes, name))
