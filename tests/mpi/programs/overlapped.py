"""A model on meshes, by which messages begin early (OVERLAPS): for each a line with a hash of loss, gradients and
weights, and the number of its reductions, printed by rank 0.

    mpirun -n P python overlapped.py MODEL AXES LEVEL WIRE MESH...

Arguments as of `partition.py`. Vectors are as short as tensors allow, up to BUCKETS of them.
"""

import sys

from mpi4py import MPI

from miniapps.partition.execution.run import Program
from miniapps.partition.planning.early import OVERLAPS, overlapped
from tests.mpi.programs.partition import mesh_of, outcome, problem

BUCKETS = 5


def main(name, axes, level, wire, *meshes):
    comm = MPI.COMM_WORLD
    plan, whole, true = comm.bcast(problem(name, axes) if comm.rank == 0 else None)
    for text in meshes:
        mesh = mesh_of(text)
        some = comm.Split(int(comm.rank >= mesh.size), comm.rank)
        if comm.rank < mesh.size:
            for overlap in OVERLAPS:
                how = overlapped(plan, overlap, BUCKETS, least=1)
                program = Program(some, how, mesh, level, wire=wire)
                found, _ = outcome(program, whole, true)
                count = sum(total.reducer is not None for total in program.totals)
                program.free()
                if len(set(some.allgather(found))) > 1:
                    print(f"{text}: ranks differ", file=sys.stderr)
                if some.rank == 0:
                    print(text, found, count, flush=True)
        some.Free()


if __name__ == "__main__":
    main(*sys.argv[1:])
