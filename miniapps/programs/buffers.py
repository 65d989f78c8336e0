"""Other libraries' arrays as NumPy's or, in GPU memory, CuPy's, without a copy; numbers as what has a bit pattern."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernels.allreduce.execution import device

REMEDY = "pass a C-contiguous array"


def as_array(array: Any, what: str, pairs: bool = False) -> Any:
    """NumPy's, torch's or CuPy's array as NumPy's or, in GPU memory, CuPy's, without a copy. TypeError for others.
    `pairs`: elements may be structures, such as a value and its index."""
    if type(array) is np.ndarray:
        found = array
    elif _is_tensor(array):
        array = array.detach()  # one that takes part in a graph shows its memory to nobody
        found = device.view(array) if device.is_on_device(array) else _of_torch(array)
    elif device.is_on_device(array):
        found = device.view(array)
    else:
        try:
            found = np.asarray(memoryview(array))
        except TypeError as error:
            raise TypeError(
                f"{what}: {type(array).__name__} is no buffer; pass an array, or use the lower-case call"
            ) from error
    if found.dtype.hasobject or (found.dtype.names and not pairs):
        raise TypeError(f"{what}: {found.dtype} is no number; {REMEDY} of one of NumPy's numbers")
    return found


def numbers(given: Any, what: str) -> Any:
    """What has a bit pattern, as NumPy's array or CuPy's: all that `as_array` takes, single numbers, a DTensor (the
    part of this rank), 8-bit floats, quantized tensors (their integers), and arrays of other libraries that NumPy can
    read (jax, pandas). Raises TypeError, which begins with `what`, for others."""
    try:
        array = as_array(_plain(given, what), what)
        if array.dtype in PADDED and array.dtype.itemsize > 10 and np.finfo(np.longdouble).nmant == 63:
            octets = np.array(array, order="C").reshape(-1).view(np.longdouble).view(np.uint8).reshape(-1, 16)
            octets[:, 10:] = 0  # of 16 bytes ten are the number, the others arbitrary
            array = octets.reshape(-1).view(array.dtype).reshape(array.shape)
        return array
    except Exception as error:
        if str(error).startswith(what):
            raise
        raise TypeError(f"{what}: {type(given).__name__}: {' '.join(str(error).split())[:300]}") from error


PADDED = (np.dtype(np.longdouble), np.dtype(np.clongdouble))


def _plain(given: Any, what: str) -> Any:
    """`given` as something that `as_array` takes."""
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
                f"{what}: a tensor of layout {tensor.layout}: pass its values and its indices, each by a name"
            )
        if tensor.is_meta:
            raise TypeError(f"{what}: a tensor of the device meta has no numbers")
        tensor = tensor.int_repr() if tensor.is_quantized else tensor
        if str(tensor.dtype) == "torch.complex32":  # which NumPy has not: both parts
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
    return any(each.__module__ == "torch" and each.__name__ == "Tensor" for each in type(given).__mro__)


def _of_torch(tensor: Any) -> np.ndarray:
    """A tensor in host memory; NumPy has no bfloat16 and no 8-bit floats of its own, and takes those of ml_dtypes."""
    import ml_dtypes
    import torch

    name = str(tensor.dtype).removeprefix("torch.")
    if name != "bfloat16" and not name.startswith("float8"):
        plain: np.ndarray = tensor.numpy()
        return plain
    words: np.ndarray = tensor.view(torch.int16 if name == "bfloat16" else torch.uint8).numpy()
    return words.view(getattr(ml_dtypes, name))
