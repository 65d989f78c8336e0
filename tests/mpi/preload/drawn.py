"""Legal calls of mpi4py drawn by a seed, and a list of them with what each took and gave: drawn.py SEED STEPS FILE-

A line for each call, in the order in which they began: NAME, bytes given and got in hexadecimal, `-` for none.
"""

import random
import sys

import numpy as np
from mpi4py import MPI

LONGEST = 40
world = MPI.COMM_WORLD
rank, size = world.rank, world.size
draw = random.Random(int(sys.argv[1]))  # the same on all ranks
comms = [world, world.Dup(), world.Split(0, rank)]
right, left = (rank + 1) % size, (rank - 1) % size
calls = []


def text(x):
    return x.tobytes().hex() or "none"


def call(name, given=None):
    calls.append([name, "-" if given is None else text(given), "-"])
    return calls[-1]


def got(line, x):
    if len(x) or "reduce" not in line[0]:  # a reduction of nothing has no total
        line[2] = text(x)


def end(requests):
    """Ends requests in one of the ways that there are."""
    way = draw.randrange(6)
    left_over = len(requests)
    if way == 0:
        MPI.Request.Waitall(requests)
    elif way == 1:
        for request in reversed(requests):
            request.Wait()
    elif way == 2:
        while not MPI.Request.Testall(requests):
            pass
    elif way == 3:
        for _ in requests:
            MPI.Request.Waitany(requests)
    elif way == 4:
        while left_over:
            left_over -= len(MPI.Request.Waitsome(requests) or [])
    else:
        while left_over:
            left_over -= len(MPI.Request.Testsome(requests) or [])


for step in range(int(sys.argv[2])):
    k, n, source = 1 + draw.randrange(8), draw.randrange(LONGEST), draw.choice((MPI.ANY_SOURCE, left))
    comm = draw.choice(comms)
    x = [rank + step * 0.125 + i * 1e-3 + np.arange(n) * 1e3 for i in range(k)]
    y = np.full((k, LONGEST), -1.0)
    match draw.randrange(10):
        case 0:
            line = call("MPI_Allreduce", x[0])
            comm.Allreduce(x[0], y[0][:n])
            got(line, y[0][:n])
        case 1:
            lines, requests = [], []
            for i in range(k):
                lines.append(call("MPI_Iallreduce", x[i]))
                requests.append(draw.choice((MPI.COMM_SELF, comm)).Iallreduce(x[i], y[i][:n], MPI.MAX))
            end(requests)
            for i in range(k):
                got(lines[i], y[i][:n])
        case 2:
            lines, requests = [], []
            for i in range(k):
                lines.append(call("MPI_Irecv"))
                requests.append(comm.Irecv(y[i], source, i))
            for i in range(k):
                call("MPI_Isend", x[i])
                requests.append(comm.Isend(x[i], right, i))
            end(requests)
            for i in range(k):
                got(lines[i], y[i][:n])
        case 3:
            line = call("MPI_Sendrecv", x[0])
            comm.Sendrecv(x[0], right, 1, y[0], source, 1)
            got(line, y[0][:n])
        case 4:
            line = call("MPI_Sendrecv_replace", x[0])
            comm.Sendrecv_replace(x[0], right, 1, source, 1)
            got(line, x[0])
        case 5:
            requests = [comm.Recv_init(y[0][:n], source, 5), comm.Send_init(x[0], right, 5)]
            for _ in range(k):
                x[0] += 1
                line = call("MPI_Recv_init")
                call("MPI_Send_init", x[0])
                MPI.Prequest.Startall(requests)
                MPI.Request.Waitall(requests)
                got(line, y[0][:n])
            for request in requests:
                request.Free()
        case 6:
            call("MPI_Isend", x[0])
            request = comm.Isend(x[0], right, 7)
            call("MPI_Mprobe")
            message = comm.Mprobe(MPI.ANY_SOURCE, 7)
            line = call("MPI_Mrecv")
            message.Recv(y[0])
            request.Wait()
            got(line, y[0][:n])
        case 7:
            kind = MPI.DOUBLE.Create_contiguous(2).Commit()
            half = n // 2 * 2
            line = call("MPI_Irecv")
            requests = [comm.Irecv([y[0], LONGEST // 2, kind], source, 9)]
            call("MPI_Isend", x[0][:half])
            requests.append(comm.Isend([x[0], n // 2, kind], right, 9))
            kind.Free()
            end(requests)
            got(line, y[0][:half])
        case 8:
            line = call("MPI_Bcast", x[0] if rank == 0 else None)
            comm.Bcast(x[0], 0)
            got(line, x[0])
        case _:
            call("MPI_Isend", x[0])
            request = comm.Isend(x[0], right, 3)
            line = call("MPI_Recv")
            comm.Recv(y[0], source, 3)
            request.Wait()
            got(line, y[0][:n])

with open(f"{sys.argv[3]}{rank}", "w") as file:
    file.writelines(" ".join(line) + "\n" for line in calls)
