"""torch's default process group over gloo, for programs that run under mpirun and under launchers of torch."""

import os
import tempfile

import torch.distributed as dist


def enter():
    """Make the group: as a launcher of torch says in the environment, else of the ranks of MPI, which then starts."""
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        return
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(f"{comm.bcast(folder)}/store", comm.size)
        dist.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
        comm.Barrier()
