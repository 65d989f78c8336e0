"""Reads files of numpy.save from untrusted sources: a header cannot claim more bytes than the file has.

NumPy allocates the size in the header before it reads the elements, and reads a header of any length.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

MAGIC = b"\x93NUMPY"
LONGEST = 10_000  # bytes of a header; NumPy's own limit, which it applies after reading
LENGTH_BYTES = {1: 2, 2: 4, 3: 4}  # of the length of the header, by version of the format


@dataclass(frozen=True)
class Header:
    """Shape, order and type as a header states them; `fortran`: the first index varies fastest."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize


def header(stream: BinaryIO) -> Header:
    """Reads the header at the beginning of `stream`; the elements follow at its position.

    Raises ValueError for files that numpy.save does not write, and for Python objects: loading them runs code.
    """
    begin = stream.read(8)
    if len(begin) < 8 or not begin.startswith(MAGIC) or begin[6] not in LENGTH_BYTES:
        raise ValueError("it does not begin like a file of numpy.save")
    width = LENGTH_BYTES[begin[6]]
    length = stream.read(width)
    announced = int.from_bytes(length, "little")
    if announced > LONGEST:
        raise ValueError(f"its header claims {announced} bytes, and at most {LONGEST} are read")
    text = stream.read(announced)
    if len(length) < width or len(text) < announced:
        raise ValueError("it ends within its header")
    read = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    try:
        with warnings.catch_warnings():  # NumPy warns of headers that Python 2 wrote
            warnings.simplefilter("ignore")
            checked = Header(*read(io.BytesIO(length + text)))
    except Exception as error:  # the header is a Python literal; the errors of its parser are not documented
        raise ValueError(f"its header cannot be read ({type(error).__name__})") from error
    if any(type(n) is not int or n < 0 for n in checked.shape) or not checked.dtype.itemsize:
        raise ValueError(
            f"its header announces elements of type {checked.dtype} in the shape {checked.shape}"
        )
    if checked.dtype.hasobject:
        raise ValueError("it holds Python objects, which are not loaded")
    return checked


def mapped(file: BinaryIO) -> np.ndarray:
    """Maps the array of an open regular `file` into memory, without reading it.

    Raises ValueError as `header` does, and where the file is shorter than its header states.
    """
    checked = header(file)
    begin, there = file.tell(), os.fstat(file.fileno()).st_size
    if begin + checked.nbytes > there:
        raise ValueError(
            f"its header announces {checked.nbytes} bytes of elements, and {there - begin} follow it"
        )
    if not checked.size:
        return np.empty(checked.shape, checked.dtype)
    return np.memmap(file, checked.dtype, "r", begin, checked.shape, "F" if checked.fortran else "C")
