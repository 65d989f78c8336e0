"""h5py over MPI-IO: every rank writes its rows of one file, all read them back and add up what they read."""

import sys

import h5py
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rows = slice(8 * comm.rank // comm.size, 8 * (comm.rank + 1) // comm.size)
numbers = 1 / (1 + np.arange(80.0).reshape(8, 10))
with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    data = file.create_dataset("u", (8, 10))
    with data.collective:
        data[rows] = numbers[rows]
with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    own = file["u"][rows].sum(dtype=np.float64)
total = np.array([own])
comm.Allreduce(MPI.IN_PLACE, total)
if comm.rank == 0:
    print("result", total[0].hex())
