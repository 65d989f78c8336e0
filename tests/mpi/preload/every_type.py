"""Broadcasts and gathers data of every type, with traps for what is not finite and rounding upward where asked; writes
which sizes the record must hold: `every_type.py EXPECTED SEED [trapping]`."""

import ctypes
import json
import platform
import sys

import numpy as np
from mpi4py import MPI

from kernels.sizes import sizes

comm = MPI.COMM_WORLD
rng = np.random.default_rng(int(sys.argv[2]))
TYPES = [
    ("float64", MPI.DOUBLE), ("float32", MPI.FLOAT), ("longdouble", MPI.LONG_DOUBLE), ("int8", MPI.INT8_T),
    ("complex64", MPI.C_FLOAT_COMPLEX), ("complex128", MPI.C_DOUBLE_COMPLEX), ("int16", MPI.SHORT), ("int32", MPI.INT),
    ("int64", MPI.LONG), ("uint8", MPI.UINT8_T), ("uint16", MPI.UINT16_T), ("uint32", MPI.UNSIGNED),
    ("uint64", MPI.UINT64_T), ("bool", MPI.C_BOOL),
]  # fmt: skip
FORTRAN = [("float64", MPI.DOUBLE_PRECISION), ("float32", MPI.REAL), ("int32", MPI.INTEGER)]
TYPES += [
    own for own in FORTRAN if own[1] != MPI.DATATYPE_NULL and own[1].Get_size() == np.dtype(own[0]).itemsize
]
MATH, UPWARD, TRAPS = ctypes.CDLL("libm.so.6"), 0x800, 0x1D  # of x86-64; not the flag of inexact results
expected = []


def drawn(dtype, count):
    words = rng.standard_normal(2 * count) * 2.0 ** rng.integers(-9, 20, 2 * count)
    if np.dtype(dtype).kind == "c":
        return words.view(np.complex128).astype(dtype)
    return np.abs(words[:count]).astype(dtype) if dtype.startswith("u") else words[:count].astype(dtype)


def state(dtype, array):
    count, rows = sizes(np.asarray(array).reshape(1, -1))
    return [dtype, count, *[None if np.isnan(x) else x.hex() for x in rows[0].tolist()]]


def call(collective, *arguments):
    """Runs it in the floating-point environment of a program that is none of ours."""
    trapping = len(sys.argv) > 3 and platform.machine() == "x86_64"
    if trapping:
        MATH.fesetround(UPWARD)
        MATH.feenableexcept(TRAPS)
    collective(*arguments)
    if trapping:
        MATH.fedisableexcept(TRAPS)
        assert MATH.fegetround() == UPWARD
        MATH.fesetround(0)


for dtype, kind in TYPES:
    for count in (0, 1, 3, 5, 64, 200):
        array = drawn(dtype, count)
        call(comm.Bcast, [array, count, kind], 0)
        expected.append(state(dtype, array))
vector = MPI.DOUBLE.Create_vector(5, 2, 3).Commit()
array = drawn("float64", 40)
call(comm.Bcast, [array, 1, vector], 0)
expected.append(state("float64", np.concatenate([array[3 * i : 3 * i + 2] for i in range(5)])))
nested = MPI.Datatype.Create_struct([2, 1], [0, 64], [MPI.FLOAT.Create_contiguous(3), MPI.FLOAT]).Commit()
array = drawn("float32", 40)
call(comm.Bcast, [array, 1, nested], 0)
expected.append(state("float32", np.concatenate([array[:6], array[16:17]])))
mixed = MPI.Datatype.Create_struct([1, 1], [0, 8], [MPI.DOUBLE, MPI.FLOAT]).Commit()
call(comm.Bcast, [bytearray(16), 1, mixed], 0)
expected.append(["", 0, *["0x0.0p+0"] * 6])
array = np.array([1.0, np.inf, 2.0, 3.0, 4.0])
call(comm.Bcast, array, 0)
expected.append(state("float64", array))
counts = [100 + 31 * rank for rank in range(comm.size)]  # pieces whose ends are nowhere near those of blocks
whole = drawn("float64", sum(counts))
begin = sum(counts[: comm.rank])
got = np.empty(sum(counts))
call(comm.Allgatherv, whole[begin : begin + counts[comm.rank]].copy(), [got, counts])
expected.append(state("float64", whole))
if comm.rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(expected, file)
