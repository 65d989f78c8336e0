"""Each rank claims a node of its own and a clock that is `rank` seconds ahead; every one must find that out."""

import sys
import time

from mpi4py import MPI

from miniapps.trace.clocks import Clocks

comm = MPI.COMM_WORLD
clocks = Clocks(comm, node=comm.Split(comm.rank))
ahead = comm.rank * 1_000_000_000
offset, bound = clocks.offset(lambda: time.perf_counter_ns() + ahead)
clocks.free()
agreements = comm.gather(abs(offset - ahead) <= bound < 10_000_000_000)
whole = Clocks(comm)
same_node = comm.gather(whole.offset() == (0.0, 0.0))
whole.free()
if comm.rank == 0:
    print(agreements, same_node)
    sys.exit(0 if all(agreements) and all(same_node) else 1)
