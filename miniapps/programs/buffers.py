"""Buffers as mpi4py's users pass them, as one-dimensional arrays; and other libraries' arrays as NumPy's.

A buffer is an array (NumPy's, a torch tensor, CuPy's), or `[array, TYPE]`, `[array, count]` or `[array, count, TYPE]`
with a named MPI type. What else MPI knows, displacements and derived types, is refused.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.allreduce.execution import device
from kernels.guarantees import ChoiceError

REMEDY = "pass a C-contiguous array"


@dataclass(frozen=True)
class Buffer:
    """`array`: the elements (n,) of a buffer, NumPy's or CuPy's, sharing its memory; `shape` as the user has it."""

    array: Any
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        dtype: np.dtype = self.array.dtype
        return dtype

    def rows(self) -> Any:
        """The buffer as (rows, elements of a row), where its first axis counts rows."""
        return self.array.reshape(self.shape[0], math.prod(self.shape[1:]))


def buffer(given: Any, what: str, rows: bool = False) -> Buffer:
    """`given`, the argument `what` of a call, as a Buffer; `rows`: its first axis counts rows.

    Raises TypeError for what is no buffer or not contiguous, ValueError for a wrong count, and ChoiceError for a
    derived type or displacements.
    """
    count = datatype = None
    array = given
    if isinstance(given, list | tuple):
        array, count, datatype = _parts(given, what)
    array = as_array(array, what)
    if rows and not array.ndim:
        raise ValueError(f"{what}: a single number has no rows; pass an array (rows, ...)")
    if not (array.flags.c_contiguous or (array.flags.f_contiguous and not rows)):
        raise TypeError(f"{what}: an array of strides {array.strides} is not contiguous; {REMEDY}")
    if not array.dtype.isnative:
        raise TypeError(f"{what}: {array.dtype} is not in this machine's byte order; pass a native copy")
    shape = array.shape
    flat = array.reshape(-1, order="C" if array.flags.c_contiguous else "F")
    if datatype is not None:
        flat = _typed(flat, datatype, what)
    if count is not None:
        if not 0 <= count <= flat.size:
            raise ValueError(f"{what}: {count} elements of a buffer of {flat.size}")
        flat = flat[:count]
    return Buffer(flat, shape if flat.size == math.prod(shape) else flat.shape)


def as_array(array: Any, what: str) -> Any:
    """NumPy's, torch's or CuPy's array as NumPy's or, in GPU memory, CuPy's, without a copy. TypeError for others."""
    tensor = _is_tensor(array)
    if tensor:
        array = array.detach()  # one that takes part in a graph shows its memory to nobody
    if type(array) is np.ndarray:
        found = array
    elif device.is_on_device(array):
        found = device.view(array)
    elif tensor:
        found = _of_torch(array)
    else:
        try:
            found = np.asarray(memoryview(array))
        except TypeError as error:
            raise TypeError(
                f"{what}: {type(array).__name__} is no buffer; pass an array, or use the lower-case call"
            ) from error
    if found.dtype.hasobject or found.dtype.names:
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


def _parts(given: Any, what: str) -> tuple[Any, int | None, MPI.Datatype | None]:
    """Array, count and type of `[array, ...]`."""
    array, *rest = given
    datatype = rest.pop() if rest and isinstance(rest[-1], MPI.Datatype | str) else None
    if isinstance(datatype, str):
        datatype = MPI.Datatype.fromcode(datatype)
    if len(rest) > 1 or (rest and not isinstance(rest[0], int | np.integer | type(None))):
        raise ChoiceError(
            f"{what}: counts and displacements {rest} are not taken here; pass the part of the array that is meant"
        )
    return array, int(rest[0]) if rest and rest[0] is not None else None, datatype


def _typed(flat: Any, datatype: MPI.Datatype, what: str) -> Any:
    """`flat` as elements of an MPI type."""
    if not (datatype.is_named and datatype.is_predefined):
        raise ChoiceError(
            f"{what}: a derived type: gaps and strides are not taken here; {REMEDY} of the elements that it picks"
        )
    dtype = np.dtype(datatype.tocode())
    if flat.dtype == dtype or flat.dtype.itemsize * flat.size % dtype.itemsize == 0:
        return flat if flat.dtype == dtype else flat.view(dtype)
    raise TypeError(f"{what}: {flat.nbytes} bytes are no whole number of {datatype.name}")
