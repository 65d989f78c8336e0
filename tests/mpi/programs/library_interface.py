"""The library for C (kernels/library) as Python programs of the tests call it, through ctypes. The first argument of
such a program is the path of libfpna.so."""

import ctypes
import sys

import numpy as np
from sections import COMM, MPI

RANK, SIZE = COMM.rank, COMM.size
RUN, LAYOUT, EXACT = 1, 2, 3
LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}
REFUSED = 1
LIBRARY = ctypes.CDLL(sys.argv[1])
LIBRARY.fpna_error.restype = ctypes.c_char_p
HANDLE = {4: ctypes.c_int, 8: ctypes.c_void_p}[MPI._sizeof(MPI.COMM_WORLD)]
IN_PLACE = ctypes.c_void_p(int(MPI.IN_PLACE))


class Report(ctypes.Structure):
    _fields_ = [
        ("field", ctypes.c_int), ("rank", ctypes.c_int), ("number", ctypes.c_int64), ("value", ctypes.c_double),
        ("lost", ctypes.c_double), ("seconds", ctypes.c_double), ("waiting", ctypes.c_double),
    ]  # fmt: skip


class Options(ctypes.Structure):
    _fields_ = [
        ("weights", ctypes.c_void_p), ("mask", ctypes.c_void_p), ("numbers", ctypes.c_void_p),
        ("threads", ctypes.c_int), ("check", ctypes.c_int), ("report", ctypes.POINTER(Report)),
    ]  # fmt: skip


def address(x, first=0):
    """Of an element of an array, or None for no array."""
    return None if x is None else x.ctypes.data + first * x.itemsize


def call(of, guarantee, x, y=None, comm=COMM, n=None, layout=(1, 0, 0), of_y=None, into=None, **options):
    """(code, totals) of a call with a flat array `x`. `layout`: stride, field stride, first element; `of_y`: of y."""
    fields = options.pop("fields", 1)
    n = len(x) if n is None else n
    total = np.full(fields, 7, x.real.dtype if of == "norm2" else x.dtype) if into is None else into
    given = Options(
        *(address(options.pop(name, None)) for name in ("weights", "mask", "numbers")), options.pop("threads", 0),
        options.pop("check", 0), options.pop("report", None),
    )  # fmt: skip
    assert not options

    def place(array, stride, field_stride, first):
        whole = ctypes.c_ssize_t(stride), ctypes.c_ssize_t(field_stride)
        return [ctypes.c_void_p(address(array, first)), *whole]

    arrays = place(x, *layout)
    if of == "dot":
        arrays += place(y, *(of_y or layout))
    code = getattr(LIBRARY, f"fpna_{of}_{LETTERS[x.dtype.name]}")(
        guarantee, HANDLE(comm.handle), ctypes.c_size_t(n), ctypes.c_size_t(fields), *arrays,
        ctypes.c_void_p(address(total)), ctypes.byref(given),
    )  # fmt: skip
    return code, total


def pointer(x):
    """The address of an array, which lives as long."""
    made = ctypes.c_void_p(address(x))
    made.of = x  # type: ignore[attr-defined]
    return made


def sentence():
    return LIBRARY.fpna_error().decode()


def bits(values):
    """With which numbers are compared; every NaN is one."""
    values = np.atleast_1d(np.asarray(values)).copy()
    real = values.view(values.real.dtype)
    real[np.isnan(real)] = np.nan
    return values.tobytes()
