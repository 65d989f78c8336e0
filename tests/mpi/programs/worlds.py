"""Wrapped communicators with processes of other worlds: started by this one, or met at a port or a socket.

Run by tests/mpi/test_worlds_mpi.py as `mpirun -n 2 python worlds.py`; as `worlds.py WORD ...` it is the started one.
"""

import socket
import sys

import numpy as np
from mpi4py import MPI
from sections import COMM, report, section

import fpna

RANK, SIZE = COMM.rank, COMM.size
TERMS = (1e17, 1.0, -1e17, 1.0)  # by rank of what was merged


def merged(between, later):
    """(what is wrong with an intercommunicator and with what is merged from it, their sums)."""
    wrong = (
        [] if isinstance(between, MPI.Intercomm) and between.guarantee == "exact" else [repr(type(between))]
    )
    comm = between.Merge(later)
    if not isinstance(comm, fpna.Communicator) or comm.guarantee != "exact":
        wrong.append(repr(type(comm)))
    total = np.empty(1)
    comm.Allreduce(np.array([TERMS[comm.rank]]), total, blocks=comm.rank)
    everyone = comm.plain.allgather((wrong, float(total[0])))
    comm.Free()
    exact = float(sum(map(int, TERMS[: len(everyone)])))
    return [f"{wrong}, {total} instead of {exact}" for wrong, total in everyone if wrong or total != exact]


@section
def a_program_that_is_started_meets_a_wrapped_communicator():
    between = fpna.wrap(COMM, "exact").Spawn(sys.executable, [__file__, "started"], 1)
    yield from merged(between, False)
    between.Disconnect()


@section
def so_do_several():
    arguments = [[__file__, "one"], [__file__, "other"]]
    between = fpna.wrap(COMM, "exact").Spawn_multiple([sys.executable] * 2, arguments, [1, 1])
    yield from merged(between, False)
    between.Disconnect()


@section
def worlds_that_meet_at_a_port_keep_the_promise():
    half, first = fpna.wrap(COMM.Split(RANK % 2), "exact"), RANK % 2 == 0
    port = COMM.bcast(MPI.Open_port() if RANK == 0 else None)
    between = half.Accept(port) if first else half.Connect(port)
    yield from merged(between, not first)
    between.Disconnect()
    if RANK == 0:
        MPI.Close_port(port)


@section
def so_do_two_that_share_a_socket():
    if RANK == 0:
        listening = socket.create_server(("127.0.0.1", 0))
        COMM.send(listening.getsockname()[1], 1)
        ours, _ = listening.accept()
        listening.close()
    else:
        ours = socket.create_connection(("127.0.0.1", COMM.recv(source=0)))
    between = fpna.wrap(MPI.COMM_SELF, "exact").Join(ours.fileno())
    yield from merged(between, RANK == 1)
    between.Disconnect()
    ours.close()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        parent = fpna.wrap(COMM, "exact").Get_parent()
        merged(parent, True)
        parent.Disconnect()
    else:
        report()
