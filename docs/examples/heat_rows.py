"""The rod of heat.py, with the same bits on any number of ranks, and recorded.

mpirun -n 4 python heat_rows.py RUN
"""

import hashlib
import sys

import numpy as np
from mpi4py import MPI

import fpna

POINTS, STEPS, BLOCK = 4096, 200, 64

comm = fpna.wrap(MPI.COMM_WORLD, guarantee="layout")
rank, size = comm.rank, comm.size
blocks = range(rank * POINTS // BLOCK // size, (rank + 1) * POINTS // BLOCK // size)
first, last = blocks.start * BLOCK, blocks.stop * BLOCK
left = rank - 1 if rank > 0 else MPI.PROC_NULL
right = rank + 1 if rank < size - 1 else MPI.PROC_NULL

x = np.arange(first, last) / POINTS
u = np.zeros(last - first + 2)  # with a point of each neighbour
u[1:-1] = 1 + np.sin(40 * x) * np.exp(3 * x)
total = np.empty(1)

with fpna.record(sys.argv[1], comm, problem={"points": POINTS}) as r:
    for step in range(1, STEPS + 1):
        r.step(step)
        comm.Sendrecv(u[1:2], left, recvbuf=u[-1:], source=right)
        comm.Sendrecv(u[-2:-1], right, recvbuf=u[:1], source=left)
        comm.Allreduce(u[1:-1], total, axis=0)  # every point is one contribution
        mean = total[0] / POINTS
        u[1:-1] += 0.2 * (u[:-2] - 2 * u[1:-1] + u[2:]) + 0.01 * (1 - mean)
        r.value("mean", mean)
        if step % 10 == 0:
            r.fingerprints("rod", u[1:-1].reshape(-1, BLOCK), blocks)

rod = comm.gather(u[1:-1])
if rank == 0:
    print(f"mean {mean:.17f}, rod {hashlib.sha256(np.concatenate(rod).tobytes()).hexdigest()[:16]}")
