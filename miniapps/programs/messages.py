"""Convert buffer arguments of mpi4py's reductions to one-dimensional arrays that share their memory.

A buffer argument is an array (of NumPy, torch, CuPy, or any object with a buffer), or a list that selects elements of
one: `[array, TYPE]`, `[array, count]`, `[array, count, TYPE]`, `[array, (count, displacement), TYPE]`,
`[array, count, displacement, TYPE]`, with counts and displacements in elements of TYPE (mpi4py's msgbuffer.pxi).
Derived types raise ChoiceError, since MPI's operations take only predefined types.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from mpi4py import MPI

from kernels.guarantees import ChoiceError
from miniapps.programs.buffers import REMEDY, as_array

PLAIN = frozenset(map(np.dtype, ("f8", "f4", "c16", "c8")))
PAIRS = {
    "FLOAT_INT": "f4,i4", "DOUBLE_INT": "f8,i4", "LONG_DOUBLE_INT": "longdouble,i4",
    "SHORT_INT": "i2,i4", "LONG_INT": "long,i4", "TWOINT": "i4,i4",
}  # fmt: skip


@dataclass(slots=True)
class Message:
    """`array`: the elements (n,) of a buffer, an array of NumPy or CuPy that shares its memory; `shape`: the user's
    shape. `count`: the count for MPI, of one block if there are several."""

    array: Any
    shape: tuple[int, ...]
    count: int

    @property
    def dtype(self) -> np.dtype:
        """Type of an element."""
        dtype: np.dtype = self.array.dtype
        return dtype

    def rows(self) -> Any:
        """The buffer as (rows, elements of a row), for a first axis that counts rows."""
        return self.array.reshape(self.shape[0], math.prod(self.shape[1:]))


def message(given: Any, what: str, *, rows: bool = False, blocks: int = 1, writable: bool = False) -> Message:
    """`given`, the argument `what` of a call, as a Message. `rows`: its first axis counts rows. `blocks`: the number of
    its blocks, one for each rank; a count then counts the elements of one block. `writable`: it receives the total.

    Raises TypeError if it is no buffer, ValueError for counts and displacements that do not fit and for arrays that are
    not contiguous, and ChoiceError, a ValueError, for a derived type.
    """
    if (
        type(given) is np.ndarray and blocks == 1 and not rows and given.dtype in PLAIN and given.flags.c_contiguous
        and not (writable and not given.flags.writeable)
    ):  # fmt: skip
        flat = given if given.ndim == 1 else given.reshape(-1)  # fast path for most calls
        return Message(flat, given.shape, flat.size)
    if given is None:
        raise TypeError(f"{what}: None is not a buffer; pass an array")
    array, count, displacement, datatype = _parts(given, what)
    dtype = None if datatype is None else element_of(datatype, what)
    if array is None:
        if dtype is None or count:
            raise ValueError(f"{what}: None holds no elements; pass an array, or [None, 0, TYPE]")
        return Message(np.empty(0, dtype), (0,), 0)
    if array is MPI.BOTTOM:
        raise ChoiceError(f"{what}: MPI.BOTTOM: absolute addresses are not supported; {REMEDY}")
    try:
        array = as_array(array, what, pairs=True)
    except RuntimeError as error:  # from torch for a conjugated view, which has no memory of its own
        raise TypeError(f"{what}: {' '.join(str(error).split())}; {REMEDY}") from None
    if rows and not array.ndim:
        raise ValueError(f"{what}: a single number has no rows; pass an array (rows, ...)")
    if not (array.flags.c_contiguous or (array.flags.f_contiguous and not rows)):
        raise ValueError(f"{what}: an array of strides {array.strides} is not contiguous; {REMEDY}")
    if not array.dtype.isnative:
        raise ValueError(f"{what}: {array.dtype} is not in this machine's byte order; pass a native copy")
    if writable and not getattr(array.flags, "writeable", True):
        raise ValueError(f"{what}: the array cannot be written to; pass one that can take the total")
    shape = array.shape
    flat = array.reshape(-1, order="C" if array.flags.c_contiguous else "F")
    left = 0
    if dtype is not None and flat.dtype != dtype:
        left = flat.nbytes % dtype.itemsize
        octets = flat.view(np.uint8)
        flat = octets[: octets.size - left].view(dtype)
    if displacement:
        if displacement > flat.size:
            raise ValueError(f"{what}: displacement {displacement} in a buffer of {flat.size} elements")
        flat = flat[displacement:]
    if count is None:
        if left:
            raise ValueError(f"{what}: {array.nbytes} bytes are not a whole number of elements of {dtype}")
        count, rest = divmod(flat.size, blocks)
        if rest:
            raise ValueError(f"{what}: {flat.size} elements are not divisible by {blocks} ranks")
    if count * blocks > flat.size:
        raise ValueError(
            f"{what}: {count * blocks} elements requested, but the buffer has {flat.size}"
            + (f": {count} for each of {blocks} ranks" if blocks > 1 else "")
        )
    flat = flat[: count * blocks]
    whole = flat.nbytes == array.nbytes and flat.dtype == array.dtype
    return Message(flat, shape if whole else flat.shape, count)


def same_memory(a: Any, b: Any) -> bool:
    """Whether two arrays begin at the same address, which MPI treats as in place."""
    if type(a) is not np.ndarray or type(b) is not np.ndarray:
        return a is b
    own: bool = a.size > 0 and a.__array_interface__["data"][0] == b.__array_interface__["data"][0]
    return own


@cache
def _known() -> dict[str, np.dtype]:
    """The element types of MPI's pairs, by name."""
    return {
        name: np.dtype(list(zip(("value", "index"), kinds.split(","), strict=True)), align=True)
        for name, kinds in PAIRS.items()
    }


def element_of(datatype: MPI.Datatype, what: str) -> np.dtype:
    """The NumPy dtype of an element of a predefined MPI type. Raises ChoiceError for derived types."""
    if datatype == MPI.DATATYPE_NULL:
        raise ValueError(f"{what}: MPI.DATATYPE_NULL is not a type")
    if datatype.combiner in (MPI.COMBINER_F90_REAL, MPI.COMBINER_F90_COMPLEX):
        return np.dtype(f"{'fc'[datatype.combiner == MPI.COMBINER_F90_COMPLEX]}{datatype.Get_size()}")
    if not (datatype.is_named and datatype.is_predefined):
        raise ChoiceError(
            f"{what}: a derived type, which MPI's operations and wrapped communicators do not support; {REMEDY} of the "
            "elements that it selects"
        )
    for name, pair in _known().items():
        if datatype == getattr(MPI, name, MPI.DATATYPE_NULL):
            return pair
    dtype = np.dtype(datatype.tocode())
    return dtype if dtype.itemsize else np.dtype("U1")  # a wide character


def _parts(given: Any, what: str) -> tuple[Any, int | None, int, MPI.Datatype | None]:
    """Array, count, displacement and type of a message."""
    count = displacement = datatype = None
    array = given
    if isinstance(given, list | tuple):
        if not 2 <= len(given) <= 4:
            raise ValueError(f"{what}: a list of {len(given)}: pass [array, TYPE], or [array, count, TYPE]")
        array, *rest = given
        if len(rest) == 3:
            count, displacement, datatype = rest
        else:
            if isinstance(rest[-1], MPI.Datatype | str) or len(rest) == 2:
                datatype = rest.pop()
            count = rest[0] if rest else None
            if isinstance(count, list | tuple):
                if len(count) != 2:
                    raise ValueError(f"{what}: {count}: a reduction takes one count and one displacement")
                count, displacement = count
    if isinstance(datatype, str):
        try:
            datatype = MPI.Datatype.fromcode(datatype)
        except (ValueError, KeyError):
            raise ValueError(f"{what}: {datatype!r} is not the code of a type") from None
    number = None if count is None else operator.index(count)
    offset = 0 if displacement is None else operator.index(displacement)
    if (number or 0) < 0 or offset < 0:
        raise ValueError(f"{what}: count {number}, displacement {offset}: neither can be negative")
    return array, number, offset, datatype
