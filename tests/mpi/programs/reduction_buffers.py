"""The bytes of the buffers of all reductions of a rank, for gpt over heads and ff; rank 0 prints them.

mpirun -n 2 python reduction_buffers.py AXES
"""

import sys
from pathlib import Path

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parent))

from partition import mesh_of, problem

from miniapps.partition.execution.run import Program


def main(axes):
    comm = MPI.COMM_WORLD
    plan, *_ = comm.bcast(problem("gpt", axes) if comm.rank == 0 else None)
    program = Program(comm, plan, mesh_of(f"m={comm.size}:heads+ff"), "layout")
    if comm.rank == 0:
        print(sum(total.buffer.nbytes for total in program.totals if total.reducer is not None))
    program.free()


if __name__ == "__main__":
    main(*sys.argv[1:])
