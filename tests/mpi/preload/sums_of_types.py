"""Sums 1, 2^-60, -1 and 2^-60 of four ranks in every floating-point and complex type of MPI. `sums_of_types.py FILE`:
rank 0 writes what each type gives, times 2^60: 2 where it is added exactly, 1 in the order of the ranks."""

import json
import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
kinds = {name: getattr(MPI, name) for name in dir(MPI) if isinstance(getattr(MPI, name), MPI.Datatype)}
kinds |= {
    "real of 15 digits": MPI.Datatype.Create_f90_real(15, 300), "real of 6 digits": MPI.Datatype.Create_f90_real(6, 30),
    "complex of 15 digits": MPI.Datatype.Create_f90_complex(15, 300),
}  # fmt: skip
found = {}
for name, kind in kinds.items():
    words = name.lower()
    if name.endswith("_INT") or not any(word in words for word in ("float", "double", "real", "complex")):
        continue
    if kind == MPI.DATATYPE_NULL or kind.Get_size() == 0:
        continue
    size = kind.Get_size() // (1 + ("complex" in words))
    given = np.full(kind.Get_size() // size, [1, 2**-60, -1, 2**-60][comm.rank], f"f{size}")
    total = np.zeros_like(given)
    if size in (4, 8):
        comm.Allreduce([given, 1, kind], [total, 1, kind])
        found[name] = [float(part) * 2**60 for part in total]
    elif size == 16 and name == "LONG_DOUBLE":
        comm.Allreduce([given, 1, kind], [total, 1, kind])
if comm.rank == 0:
    with open(sys.argv[1], "w") as file:
        json.dump(found, file)
