"""Rank 0 takes messages by probes, in the order ORDER of ranks: `recv` of objects, or a probe and a receive from its
source (`named`)."""

import os
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
place = os.environ["ORDER"].index(str(comm.rank)) if comm.rank else 0
for step in range(3):
    comm.Barrier()
    if comm.rank:
        time.sleep(0.05 * place)
        comm.send(float(comm.rank) / 3, 0, tag=step)
        continue
    total = 0.0
    for _ in range(comm.size - 1):
        if sys.argv[1] == "named":
            status = MPI.Status()
            comm.Probe(MPI.ANY_SOURCE, step, status)
            total += comm.recv(source=status.source, tag=step)
        else:
            total += comm.recv(source=MPI.ANY_SOURCE, tag=step)
    print(f"total {total.hex()}", flush=True)
