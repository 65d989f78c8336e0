"""dask-mpi: a scheduler, a client and workers, one a rank; a sum of parts that arrive by sockets and not by MPI."""

from dask_mpi import initialize
from distributed import Client

initialize(interface="lo", nthreads=1, dashboard=False, local_directory="/tmp")


def part(i):
    return 1 / (1 + i)


with Client() as client:
    print("result", sum(client.gather(client.map(part, range(8)))).hex(), flush=True)
