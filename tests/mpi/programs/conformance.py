"""The bits of the MPI library's own all-reduce, on communicators of several sizes.

Run by tests/mpi/test_conformance_mpi.py as `mpirun -n 8 python conformance.py CALL...`; rank 0 prints JSON:
for each call, digests of the totals by size, length and type.
"""

import json
import sys
from hashlib import blake2b

import numpy as np

SIZES = (2, 3, 4, 5, 7, 8)
DTYPES = ("float64", "float32")


def lengths(size):
    return sorted({1, 2, size - 1, size, 13, 1000, 30011})


def cases():
    return [(size, n, dtype) for size in SIZES for n in lengths(size) for dtype in DTYPES]


def numbers(size, rank, n, dtype):
    """What a rank contributes, one all-reduce per row: of near magnitudes, where the order shows in most sums."""
    rng = np.random.default_rng([size, rank, n])
    rows = max(2, 24 // n)
    return (rng.standard_normal((rows, n)) * 10.0 ** rng.integers(-1, 2, (rows, n))).astype(dtype)


def digest(totals):
    return blake2b(np.ascontiguousarray(totals).tobytes(), digest_size=8).hexdigest()


def allreduce(comm, send, receive, call):
    if call == "persistent":
        request = comm.Allreduce_init(send, receive)
        request.Start()
        request.Wait()
        request.Free()
    else:
        comm.Allreduce(send, receive)


def totals_of(world, call):
    """{"SIZE LENGTH TYPE": digest of the totals, or the digests of all ranks where these differ}, on rank 0."""
    digests = {}
    for size in SIZES:
        comm = world.Split(int(world.rank >= size))
        if world.rank < size:
            for n in lengths(size):
                for dtype in DTYPES:
                    send = numbers(size, comm.rank, n, dtype)
                    totals = np.empty_like(send)
                    for own, total in zip(send, totals, strict=True):
                        allreduce(comm, own, total, call)
                    everywhere = sorted(set(comm.allgather(digest(totals))))
                    digests[f"{size} {n} {dtype}"] = everywhere[0] if len(everywhere) == 1 else everywhere
        comm.Free()
    return digests


def main(calls):
    from mpi4py import MPI

    digests = {call: totals_of(MPI.COMM_WORLD, call) for call in calls}
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(digests))


if __name__ == "__main__":
    main(sys.argv[1:])
