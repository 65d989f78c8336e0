"""What a step on each mesh should send, and what its messages carry: a line MESH TOLD SENT, in bytes of all ranks.

    mpirun -n P python partition_bytes.py MODEL AXES MESH...

Meshes as for `partition.py`. A message of a step is a persistent request, counted whenever it is started, or goes to
another stage of a pipeline.
"""

import sys
from pathlib import Path

from mpi4py import MPI

sys.path.insert(0, str(Path(__file__).parent))

from partition import mesh_of, problem

from miniapps.partition.execution.learn import Learner
from miniapps.partition.execution.run import Program
from miniapps.partition.showing.explain import explain

carried: dict[int, int] = {}  # of requests that send, by their handle: bytes
sent = 0


class CountedRequest(MPI.Prequest):
    """A request whose starts are counted."""

    @classmethod
    def Startall(cls, requests):
        """Count, then start."""
        global sent
        sent += sum(carried.get(MPI._handleof(request), 0) for request in requests)
        START(requests)


class CountedComm(MPI.Intracomm):
    """A communicator, and all that are made from it, with counted requests."""

    def Send_init(self, buf, dest, tag=0):
        """As MPI's; what it carries is noted."""
        request = CountedRequest(super().Send_init(buf, dest, tag))
        carried[MPI._handleof(request)] = buf.nbytes
        return request

    def Isend(self, buf, dest, tag=0):
        """As MPI's, counted."""
        global sent
        sent += buf.nbytes
        return super().Isend(buf, dest, tag)

    def Recv_init(self, buf, source=MPI.ANY_SOURCE, tag=MPI.ANY_TAG):
        """As MPI's; its handle may be that of a request that was freed."""
        request = CountedRequest(super().Recv_init(buf, source, tag))
        carried.pop(MPI._handleof(request), None)
        return request

    def Split(self, color=0, key=0):
        """As MPI's, which makes no communicator of this class."""
        return CountedComm(super().Split(color, key))


START = MPI.Prequest.Startall


def main(name, axes, *meshes):
    global sent
    MPI.Prequest = CountedRequest
    comm = CountedComm(MPI.COMM_WORLD)
    plan, whole, _ = comm.bcast(problem(name, axes) if comm.rank == 0 else None)
    for text in meshes:
        mesh = mesh_of(text)
        some = comm.Split(int(comm.rank >= mesh.size), comm.rank)
        if comm.rank < mesh.size:
            program = Program(some, plan, mesh, "layout")
            learner = Learner(program, whole)
            sent = 0
            learner.compute()
            total = some.reduce(sent)
            program.free()
            if some.rank == 0:
                print(text, explain(plan, mesh)["bytes"], total, flush=True)
        some.Free()
    MPI.Prequest = CountedRequest.__base__


if __name__ == "__main__":
    main(*sys.argv[1:])
